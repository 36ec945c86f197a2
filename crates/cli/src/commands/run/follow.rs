//! Follows jobs to their end: bars on a terminal, a line for each change in a pipe.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use serde::de::DeserializeOwned;

use super::submit::Submitted;
use crate::failure::{Failure, chain};
use crate::job::JobView;
use crate::output;

/// Waits until every job has ended, and shows each change on the way.
pub(crate) async fn until_finished(client: &Client, jobs: &[Submitted]) -> Result<Vec<JobView>, Failure> {
    let bars = output::is_terminal().then(MultiProgress::new);
    let each = jobs.iter().map(|job| {
        let display = Display::new(bars.as_ref(), job);
        one(client.clone(), job.clone(), display)
    });
    futures::future::try_join_all(each).await
}

async fn one(client: Client, job: Submitted, display: Display) -> Result<JobView, Failure> {
    match job.kind.as_str() {
        "ImagePullJob" => watch::<ImagePullJob>(namespaced(client, &job), &job, display).await,
        "ImageListPullJob" => watch::<ImageListPullJob>(namespaced(client, &job), &job, display).await,
        _ => watch::<ImagePrePullJob>(Api::all(client), &job, display).await,
    }
}

fn namespaced<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(
    client: Client,
    job: &Submitted,
) -> Api<K> {
    match &job.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::default_namespaced(client),
    }
}

async fn watch<K>(api: Api<K>, job: &Submitted, mut display: Display) -> Result<JobView, Failure>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    for<'a> JobView: From<&'a K>,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={}", job.name));
    // The link may be bad: the watcher tries again, ever more rarely, and the jobs go on meanwhile.
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                let view = JobView::from(&object);
                display.show(&view);
                if view.phase.is_final() {
                    return Ok(view);
                }
            }
            Ok(Some(watcher::Event::Delete(_))) => {
                return Err(Failure::wrong(format!(
                    "{} {} was deleted before it ended",
                    job.kind, job.name
                )));
            }
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
            Ok(None) => return Err(Failure::unreachable("the API server ended the watch for good")),
            Err(error) => display.trouble(&chain(&error)),
        }
    }
}

/// How one job is shown.
enum Display {
    Bar(ProgressBar),
    Lines { last: Option<String> },
}

impl Display {
    fn new(bars: Option<&MultiProgress>, job: &Submitted) -> Self {
        let Some(bars) = bars else {
            return Self::Lines { last: None };
        };
        let bar = bars.add(ProgressBar::new(0));
        let style = ProgressStyle::with_template("{prefix:<32} {wide_bar:.green} {pos:>5}/{len:<5} {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        bar.set_prefix(format!("{}/{}", job.kind.to_ascii_lowercase(), job.name));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    fn show(&mut self, view: &JobView) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(u64::try_from(view.desired).unwrap_or(0));
                bar.set_position(u64::try_from(view.succeeded + view.failed).unwrap_or(0));
                bar.set_message(short(view));
                if view.phase.is_final() {
                    bar.finish();
                }
            }
            Self::Lines { last } => {
                let line = format!(
                    "{}: {}, {}/{} done, {} failed{}",
                    view.title(),
                    view.phase.as_str(),
                    view.succeeded,
                    view.desired,
                    view.failed,
                    if view.message.is_empty() {
                        String::new()
                    } else {
                        format!("; {}", view.message)
                    }
                );
                if last.as_ref() != Some(&line) {
                    output::line(&line);
                    *last = Some(line);
                }
            }
        }
    }

    fn trouble(&self, text: &str) {
        if let Self::Bar(bar) = self {
            bar.set_message(format!("waiting for the API server: {text}"));
        }
    }
}

fn short(view: &JobView) -> String {
    let eta = view.eta_seconds.filter(|_| !view.phase.is_final());
    match (view.failed, eta) {
        (0, None) => view.phase.as_str().to_owned(),
        (0, Some(seconds)) => format!("{}, {seconds} s left", view.phase.as_str()),
        (failed, None) => format!("{}, {failed} failed", view.phase.as_str()),
        (failed, Some(seconds)) => format!("{}, {failed} failed, {seconds} s left", view.phase.as_str()),
    }
}
