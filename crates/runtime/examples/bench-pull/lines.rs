//! One function for each line of the table.

use std::num::NonZeroU64;
use std::process::Stdio;
use std::time::Duration;

use larder_model::ImageRef;
use larder_registry::fetch::FetchSettings;
use larder_testkit::image::{Compression, Image, Layer, Recipe};
use larder_testkit::{Containerd, Link, wait_for, wait_until};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::world::{Kind, MB, World, pull, runtime};

/// How often each side of a comparison is run, in turns; the fastest counts, which the rest of the machine disturbed least.
pub(crate) const RUNS: usize = 3;

const PATIENCE: Duration = Duration::from_mins(5);

/// How large the images are, in percent: less than 100 shows that every line works, not how fast.
#[derive(Clone, Copy)]
pub(crate) struct Scale(pub(crate) u64);

impl Scale {
    fn image(self, seed: u64, layers: u64, each: u64, compression: Compression) -> Image {
        let size = usize::try_from(each * MB * self.0 / 100).unwrap();
        let layers = (0..layers).map(|n| Layer::random(seed + n, size).compression(compression));
        Recipe::new(layers).build()
    }
}

/// CRI and our fetcher in turns; the best of each.
async fn compare(kind: &Kind, image: &ImageRef, runs: usize) -> (f64, f64, String) {
    let (mut cri, mut ours) = (f64::MAX, f64::MAX);
    let mut path = String::new();
    for _ in 0..runs {
        cri = cri.min(pull(kind, image, None).await.0.as_secs_f64());
        let (time, taken) = pull(kind, image, Some(FetchSettings::default())).await;
        ours = ours.min(time.as_secs_f64());
        path = match taken {
            larder_runtime::FetchPath::LeftToRuntime(why) => format!(" (left to CRI: {})", why.as_str()),
            _ => String::new(),
        };
    }
    (cri, ours, path)
}

/// A comparison over a line that is slow for each connection.
pub(crate) struct SlowLine {
    pub(crate) name: &'static str,
    pub(crate) link: Link,
    pub(crate) layers: u64,
    /// Megabytes of each layer.
    pub(crate) each: u64,
    pub(crate) runs: usize,
    pub(crate) goal: f64,
}

pub(crate) async fn slow_line(kind: &Kind, scale: Scale, line: &SlowLine) {
    let SlowLine {
        name,
        link,
        layers,
        each,
        runs,
        goal,
    } = *line;
    let world = World::start().await;
    let image = scale.image(1, layers, each, Compression::Gzip);
    let image = world.push(&image, "app").await;
    world.line.set(link);
    let (cri, ours, path) = compare(kind, &image, runs).await;
    let factor = cri / ours;
    println!(
        "| {name} | {} | {cri:.1} s | {ours:.1} s{path} | {factor:.1} × faster | ≥ {goal:.0} × |",
        kind.name
    );
}

pub(crate) async fn loopback(kind: &Kind, scale: Scale) {
    let shapes = [
        ("loopback, 100 MB, gzip", 5, 20, Compression::Gzip),
        ("loopback, 100 MB, zstd", 5, 20, Compression::Zstd),
        ("loopback, 100 MB, plain tar", 5, 20, Compression::None),
        ("loopback, 1 GB, gzip", 5, 200, Compression::Gzip),
        ("loopback, 1 GB, zstd", 5, 200, Compression::Zstd),
    ];
    for (line, layers, each, compression) in shapes {
        let world = World::start().await;
        world.push(&scale.image(1, layers, each, compression), "app").await;
        let (cri, ours, path) = compare(kind, &world.direct("app"), RUNS).await;
        println!(
            "| {line} | {} | {cri:.2} s | {ours:.2} s{path} | {:.2} × its time | ≤ 1.05 × |",
            kind.name,
            ours / cri
        );
    }
}

pub(crate) async fn dropped_connections(kind: &Kind, scale: Scale) {
    let world = World::start().await;
    let built = scale.image(1, 5, 20, Compression::Gzip);
    let image = world.push(&built, "app").await;
    let containerd = kind.start().await;
    let runtime = runtime(&containerd.socket(), Some(FetchSettings::default())).await;
    world.line.set(Link::bytes_per_second(8 * MB));
    let request = larder_runtime::PullRequest::new(image);
    let pulling = tokio::spawn(async move { runtime.pull(&request).await });
    // Ten cuts, each at a moment of its own; all connections that are open break.
    let mut cuts = 0;
    while cuts < 10 && !pulling.is_finished() {
        let next = world.line.bytes() + built.content_size() / 12;
        wait_until(PATIENCE, "bytes on the line, or all of them", async || {
            next <= world.line.bytes() || pulling.is_finished()
        })
        .await
        .unwrap();
        world.line.set(Link::Refused);
        // Long enough for the line to notice; a state that is replaced at once is never seen.
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.line.set(Link::bytes_per_second(8 * MB));
        cuts += 1;
    }
    pulling.await.unwrap().unwrap();
    row(
        kind,
        &format!("{cuts} times all connections dropped"),
        &share(&world, &built),
        "≤ 1.05 × the bytes",
    );
}

pub(crate) async fn killed(kind: &Kind, scale: Scale) {
    for percent in [30, 60, 90] {
        let world = World::start().await;
        let built = scale.image(1, 5, 20, Compression::Gzip);
        let image = world.push(&built, "app").await;
        world.line.set(Link::bytes_per_second(8 * MB));
        let containerd = kind.start().await;
        let mut first = child(&containerd, &[&image]);
        wait_for_bytes(&world, built.content_size() * percent / 100).await;
        first.kill().await.unwrap();
        assert!(child(&containerd, &[&image]).wait().await.unwrap().success());
        let line = format!("killed (kill -9) at {percent} %");
        row(kind, &line, &share(&world, &built), "≤ 1.05 × the bytes");
    }
}

pub(crate) async fn limited(kind: &Kind, scale: Scale) {
    let world = World::start().await;
    let built = scale.image(1, 5, 10, Compression::Gzip);
    let image = world.push(&built, "app").await;
    let settings = FetchSettings {
        max_bandwidth: NonZeroU64::new(5 * MB),
        ..FetchSettings::default()
    };
    let containerd = kind.start().await;
    let runtime = runtime(&containerd.socket(), Some(settings)).await;
    let request = larder_runtime::PullRequest::new(image);
    let pulling = tokio::spawn(async move { runtime.pull(&request).await });
    wait_for_bytes(&world, built.content_size() / 10).await;
    let (start, before) = (Instant::now(), world.line.bytes());
    wait_for_bytes(&world, built.content_size() * 9 / 10).await;
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact bytes")]
    let rate = (world.line.bytes() - before) as f64 / start.elapsed().as_secs_f64() / 1e6;
    pulling.await.unwrap().unwrap();
    row(
        kind,
        "limited to 5 MB/s, on the line",
        &format!("{rate:.2} MB/s"),
        "4.75–5.25 MB/s",
    );
}

pub(crate) async fn memory(kind: &Kind, scale: Scale) {
    let world = World::start().await;
    let mut images = Vec::new();
    for n in 0..3 {
        let built = scale.image(1 + n * 10, 5, 200, Compression::Gzip);
        images.push(world.push(&built, &format!("app{n}")).await);
    }
    world.line.set(Link::bytes_per_second(8 * MB));
    let containerd = kind.start().await;
    let names: Vec<&ImageRef> = images.iter().collect();
    let mut pulling = child(&containerd, &names);
    let status = format!("/proc/{}/status", pulling.id().unwrap());
    let mut peak = 0;
    wait_until(PATIENCE, "three pulls", async || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        peak = now.unwrap_or(0).max(peak);
        pulling.try_wait().unwrap().is_some()
    })
    .await
    .unwrap();
    let line = "peak memory of a process that fetches three images of 1 GB at once";
    row(kind, line, &format!("{} MB", peak / 1000), "≤ 40 MB (agent)");
}

fn child(containerd: &Containerd, images: &[&ImageRef]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("child").arg(containerd.socket());
    command.args(images.iter().map(ToString::to_string));
    command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

async fn wait_for_bytes(world: &World, bytes: u64) {
    wait_for(PATIENCE, "bytes on the line", async || {
        let now = world.line.bytes();
        if bytes <= now { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
}

/// What crossed the line, as a share of the image.
#[expect(clippy::cast_precision_loss, reason = "a share needs no exact bytes")]
fn share(world: &World, image: &Image) -> String {
    format!("{:.3} ×", world.line.bytes() as f64 / image.content_size() as f64)
}

fn row(kind: &Kind, line: &str, value: &str, goal: &str) {
    println!("| {line} | {} | {value} | {goal} |", kind.name);
}
