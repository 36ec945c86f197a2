//! The same pulls by a bare CRI call and through the agent.

use std::path::Path;
use std::time::Duration;

use larder_model::ImageRef;
use larder_runtime::cri::CriRuntime;
use larder_runtime::{ImageRuntime as _, PullRequest, RuntimeEndpoint};
use larder_testkit::image::Recipe;
use larder_testkit::{Access, Containerd, Registry};
use tokio::time::Instant;

use crate::node::{node, shown};
use crate::row;

const RUNS: u64 = 20;
const MIB: usize = 1 << 20;

pub(crate) async fn overhead(access: &Access, registry: &Registry, containerd: &Containerd) {
    let cri = CriRuntime::new(&RuntimeEndpoint::at(containerd.socket()), Path::new("/")).unwrap();
    let node = node(access).await;
    let _agent = node.agent(access, &containerd.socket()).await;
    let mut changes = Box::pin(node.changes());
    let (mut bare, mut ours): (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    // In turn, so that both meet the same machine.
    for run in 0..RUNS {
        let push = async |name: String, seed: u64| {
            let image = Recipe::random(seed, 2, 5 * MIB).build();
            registry.push(&image, &name, "1").await.unwrap().reference
        };
        let reference = push(format!("bare-{run}"), 5000 + run).await;
        let began = Instant::now();
        cri.pull(&PullRequest::new(ImageRef::parse(&reference).unwrap()))
            .await
            .unwrap();
        bare.push(began.elapsed());
        let reference = push(format!("ours-{run}"), 7000 + run).await;
        let sent = node.order(std::slice::from_ref(&reference)).await;
        ours.push(shown(&mut changes, &reference).await - sent);
    }
    let bare = row("10 MB image: bare CRI PullImage", bare);
    let ours = row("10 MB image: order sent → result in a watch event", ours);
    println!(
        "| overhead | {:.1} ms | | |",
        (ours.as_secs_f64() - bare.as_secs_f64()) * 1000.0
    );
}
