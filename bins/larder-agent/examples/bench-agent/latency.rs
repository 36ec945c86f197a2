//! How long orders and answers travel.

use std::sync::Arc;
use std::time::Duration;

use larder_agent::{Clock, Credentials, Metrics, Parts, RuntimeSource, Settings};
use larder_model::{ImageRef, NodeName};
use larder_runtime::fake::{FakeRuntime, Script};
use larder_telemetry::Health;
use larder_testkit::image::Recipe;
use larder_testkit::{Access, Containerd, CriProxy, Registry, wait_until};
use tokio_util::sync::CancellationToken;

use crate::node::{LIMIT, node, shown};
use crate::row;

const RUNS: u64 = 60;

/// From the patch that changes the spec to the PullImage call at the runtime's socket.
pub(crate) async fn order_to_call(access: &Access, registry: &Registry, containerd: &Containerd) {
    let proxy = CriProxy::start(&containerd.socket()).unwrap();
    let node = node(access).await;
    let _agent = node.agent(access, proxy.socket()).await;
    let mut samples = Vec::new();
    for run in 0..RUNS {
        let name = format!("order-{run}");
        let pushed = registry
            .push(&Recipe::random(run, 1, 1000).build(), &name, "1")
            .await
            .unwrap();
        let before = proxy.calls_of("PullImage").len();
        let sent = node.order(&[pushed.reference]).await;
        wait_until(LIMIT, "the call", async || proxy.calls_of("PullImage").len() > before)
            .await
            .unwrap();
        samples.push(proxy.calls_of("PullImage")[before].at - sent);
    }
    row("spec patch sent → PullImage at the runtime's socket", samples);
}

/// From the end of a pull to the watch event that shows it. The runtime is scripted, so that its end is known exactly.
pub(crate) async fn end_to_status(access: &Access) {
    const TAKES: Duration = Duration::from_millis(300);
    let node = node(access).await;
    let fake = FakeRuntime::new();
    fake.script_all(Script::takes(TAKES));
    let state = tempfile::tempdir().unwrap();
    let settings = Settings {
        state_dir: Some(state.path().to_owned()),
        ..Settings::new(NodeName::parse(&node.name).unwrap())
    };
    let parts = Parts {
        client: access.client().unwrap(),
        runtime: RuntimeSource::Given(Arc::new(fake.clone())),
        credentials: Credentials::default(),
        clock: Clock::of_this_machine(),
        metrics: Metrics::default(),
        health: Health::default(),
    };
    let stop = CancellationToken::new();
    let agent = tokio::spawn(larder_agent::run(settings, parts, stop.clone()));
    let mut changes = Box::pin(node.changes());
    let mut samples = Vec::new();
    for run in 0..RUNS {
        let reference = format!("status-{run}:1");
        node.order(std::slice::from_ref(&reference)).await;
        let visible = shown(&mut changes, &reference).await;
        let image = ImageRef::parse(&reference).unwrap();
        let began = fake.pulls().into_iter().find(|pull| pull.image == image).unwrap().at;
        samples.push((visible - began).saturating_sub(TAKES));
    }
    row("pull ended → result in a watch event", samples);
    stop.cancel();
    agent.await.unwrap().unwrap();
}
