//! Measures the embedded server beside the real one, with the same client, on the same machine, in one run:
//! `cargo run --release -p larder-localplane --example bench -- [OBJECTS] [WATCHERS]`.
//!
//! Both run as processes of their own behind TLS and write to the same kind of disk; etcd and kube-apiserver are
//! started as the tests start them. The example `serve` must have been built with the same profile.
#![expect(clippy::print_stdout, reason = "its output is a table for people")]

use std::{error::Error, path::Path, process::Stdio, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use larder_testkit::{ControlPlane, Options};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::{Instant, timeout},
};

type WriteResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PATH: &str = "/apis/apps.kruise.io/v1beta1/nodeimages";
/// Writers at a time: a controller and a few hundred agents rarely have more under way.
const WRITERS: usize = 32;
/// Watches per connection; the real server allows a hundred.
const PER_CONNECTION: usize = 50;

/// What was measured on one server.
struct Figures {
    creates: f64,
    patches: f64,
    list: Duration,
    list_bytes: usize,
    paged: Duration,
    one: Duration,
    fan_out: Duration,
    memory: u64,
}

#[tokio::main]
async fn main() -> WriteResult<()> {
    let mut arguments = std::env::args().skip(1);
    let objects: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let watchers: usize = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
    let ours = measure_ours(objects, watchers).await?;
    let theirs = measure_theirs(objects, watchers).await?;
    print(&ours, &theirs, objects, watchers);
    Ok(())
}

async fn measure_ours(objects: usize, watchers: usize) -> WriteResult<Figures> {
    let folder = tempfile::tempdir()?;
    let (mut child, kubeconfig) = serve(folder.path()).await?;
    let pid = child.id().ok_or("the server has ended")?;
    let figures = measure(&kubeconfig, &[pid], objects, watchers).await;
    child.kill().await?;
    figures
}

async fn measure_theirs(objects: usize, watchers: usize) -> WriteResult<Figures> {
    let plane = ControlPlane::start(Options {
        crds: larder_api::crds(),
        ..Options::default()
    })
    .await?;
    measure(plane.kubeconfig(), &plane.pids(), objects, watchers).await
}

async fn serve(folder: &Path) -> WriteResult<(Child, std::path::PathBuf)> {
    let program = std::env::current_exe()?.with_file_name("serve");
    let kubeconfig = folder.join("kubeconfig");
    let mut child = Command::new(program)
        .args([
            folder.join("objects.redb").as_os_str(),
            "127.0.0.1:0".as_ref(),
            kubeconfig.as_os_str(),
        ])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    BufReader::new(output)
        .lines()
        .next_line()
        .await?
        .ok_or("the server did not start")?;
    Ok((child, kubeconfig))
}

async fn client(kubeconfig: &Path) -> WriteResult<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.disable_compression = true;
    Ok(Client::try_from(config)?)
}

async fn measure(kubeconfig: &Path, pids: &[u32], objects: usize, watchers: usize) -> WriteResult<Figures> {
    let client = client(kubeconfig).await?;
    let start = Instant::now();
    each(objects, |index| {
        write(&client, Method::POST, PATH.to_owned(), node_image(index))
    })
    .await?;
    let creates = rate(objects, start);
    let half = objects / 2;
    let start = Instant::now();
    each(half, |index| {
        write(
            &client,
            Method::PATCH,
            format!("{PATH}/{}/status", name(index)),
            report(index),
        )
    })
    .await?;
    let patches = rate(half, start);
    let mut lists = Vec::new();
    let mut list_bytes = 0;
    for _ in 0..5 {
        let start = Instant::now();
        list_bytes = read(&client, PATH).await?.len();
        lists.push(start.elapsed());
    }
    let start = Instant::now();
    pages(&client).await?;
    let paged = start.elapsed();
    let (one, fan_out) = watches(kubeconfig, &client, watchers.min(objects)).await?;
    let memory = pids.iter().map(|pid| resident(*pid)).sum::<WriteResult<u64>>()?;
    Ok(Figures {
        creates,
        patches,
        list: median(lists),
        list_bytes,
        paged,
        one,
        fan_out,
        memory,
    })
}

async fn each<F: Future<Output = WriteResult<()>>>(count: usize, act: impl Fn(usize) -> F) -> WriteResult<()> {
    stream::iter((0..count).map(Ok))
        .try_for_each_concurrent(WRITERS, act)
        .await
}

async fn write(client: &Client, method: Method, path: String, body: Value) -> WriteResult<()> {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Body::from(body.to_string().into_bytes()))?;
    let response = client.send(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if status.is_success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&body).into_owned().into())
    }
}

async fn read(client: &Client, path: &str) -> WriteResult<bytes::Bytes> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

async fn pages(client: &Client) -> WriteResult<()> {
    let mut next = String::new();
    loop {
        let page: Value = serde_json::from_slice(&read(client, &format!("{PATH}?limit=500{next}")).await?)?;
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => next = format!("&continue={token}"),
            _ => return Ok(()),
        }
    }
}

/// Median time from a write to the one watcher of that object, then from one write to all watchers of one object.
async fn watches(kubeconfig: &Path, writer: &Client, watchers: usize) -> WriteResult<(Duration, Duration)> {
    let mut clients = Vec::new();
    for _ in 0..watchers.div_ceil(PER_CONNECTION) {
        clients.push(client(kubeconfig).await?);
    }
    let revision = revision(writer).await?;
    let open = |object: usize, index: usize| {
        let client = clients[index / PER_CONNECTION].clone();
        let query = format!(
            "watch=1&resourceVersion={revision}&fieldSelector=metadata.name%3D{}",
            name(object)
        );
        async move {
            let request = Request::get(format!("{PATH}?{query}")).body(Body::empty())?;
            WriteResult::Ok(client.send(request).await?.into_body().into_data_stream())
        }
    };
    let mut own = stream::iter((0..watchers).map(|index| open(index, index)))
        .buffered(WRITERS)
        .try_collect::<Vec<_>>()
        .await?;
    let mut times = Vec::new();
    for index in (0..watchers).step_by(watchers.div_ceil(100)) {
        let start = Instant::now();
        let path = format!("{PATH}/{}/status", name(index));
        let heard = timeout(Duration::from_secs(30), own[index].next());
        let (written, heard) = tokio::join!(write(writer, Method::PATCH, path, report(index + 1)), heard);
        written?;
        heard?.ok_or("a watch ended")??;
        times.push(start.elapsed());
    }
    drop(own);
    let shared = stream::iter((0..watchers).map(|index| open(watchers, index)))
        .buffered(WRITERS)
        .try_collect::<Vec<_>>()
        .await?;
    let start = Instant::now();
    let path = format!("{PATH}/{}/status", name(watchers));
    let hear = stream::iter(shared)
        .map(|mut watch| async move { watch.next().await.is_some() })
        .buffer_unordered(watchers);
    let (written, heard) = tokio::join!(
        write(writer, Method::PATCH, path, report(watchers + 1)),
        timeout(
            Duration::from_mins(1),
            hear.filter(|heard| std::future::ready(*heard)).count()
        )
    );
    written?;
    if heard? < watchers {
        return Err("a watch ended".into());
    }
    Ok((median(times), start.elapsed()))
}

async fn revision(client: &Client) -> WriteResult<String> {
    let page: Value = serde_json::from_slice(&read(client, &format!("{PATH}?limit=1")).await?)?;
    Ok(page["metadata"]["resourceVersion"]
        .as_str()
        .ok_or("no revision")?
        .to_owned())
}

fn name(index: usize) -> String {
    format!("node-{index:05}")
}

/// Twenty images, as a node that has been at work for a while.
fn node_image(index: usize) -> Value {
    let images: serde_json::Map<String, Value> = (0..20)
        .map(|image| {
            let tag = json!({
                "tag": format!("v1.{image}"),
                "version": 1,
                "pullPolicy": {"ttlSecondsAfterFinished": 300},
                "claims": [{"uid": format!("4afcff36-c096-4678-b41f-{index:012}"), "version": 1}],
            });
            (format!("registry.example/team/app-{image}"), json!({"tags": [tag]}))
        })
        .collect();
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "NodeImage",
        "metadata": {"name": name(index), "labels": {"zone": format!("z{}", index % 10)}},
        "spec": {"images": images},
    })
}

fn report(index: usize) -> Value {
    let tag = json!({"tag": "v1.1", "version": 1, "phase": "Succeeded", "attempts": 1, "bytesDone": index});
    json!({"status": {"desired": 20, "succeeded": 1, "imageStatuses": {"registry.example/team/app-1": {"tags": [tag]}}}})
}

fn rate(count: usize, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let count = count as f64;
    count / start.elapsed().as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Resident memory in KiB.
fn resident(pid: u32) -> WriteResult<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

fn print(ours: &Figures, theirs: &Figures, objects: usize, watchers: usize) {
    let seconds = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
    let fine = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    let rows = [
        (
            format!("create {objects} NodeImages, {WRITERS} at a time"),
            format!("{:.0}/s", ours.creates),
            format!("{:.0}/s", theirs.creates),
        ),
        (
            format!("patch the status of {}", objects / 2),
            format!("{:.0}/s", ours.patches),
            format!("{:.0}/s", theirs.patches),
        ),
        (
            format!("list {objects} (median of 5)"),
            seconds(ours.list),
            seconds(theirs.list),
        ),
        (
            "size of that list".into(),
            format!("{} MB", ours.list_bytes / 1_000_000),
            format!("{} MB", theirs.list_bytes / 1_000_000),
        ),
        (
            "list in pages of 500".into(),
            seconds(ours.paged),
            seconds(theirs.paged),
        ),
        (
            format!("write to its own watcher, among {watchers} (median)"),
            fine(ours.one),
            fine(theirs.one),
        ),
        (
            format!("one event to {watchers} watchers, the last of them"),
            seconds(ours.fan_out),
            seconds(theirs.fan_out),
        ),
        (
            "resident memory afterwards".into(),
            format!("{} MB", ours.memory / 1024),
            format!("{} MB", theirs.memory / 1024),
        ),
    ];
    println!("| what | localplane | etcd + kube-apiserver |\n|---|--:|--:|");
    for (what, ours, theirs) in rows {
        println!("| {what} | {ours} | {theirs} |");
    }
}
