//! Follows jobs to their end: bars on a terminal, a line for each change in a pipe.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use larder_model::ByteSize;
use serde::de::DeserializeOwned;

use super::nodes::{Followed, NodeRows};
use super::submit::Submitted;
use crate::bars::{self, Bar, Bars};
use crate::failure::{Failure, chain};
use crate::job::{JobView, Phase};
use crate::output;
use crate::printable::Tone;

/// How long a job may stay without a status before this is reported. A controller takes less than a second.
const UNCLAIMED_LIMIT: Duration = Duration::from_secs(10);

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Nothing,
    Jobs,
    Nodes,
}

/// Waits until every job has ended, and shows each change on the way.
pub(crate) async fn until_finished(
    client: &Client,
    jobs: &[Submitted],
    detail: Detail,
) -> Result<Vec<JobView>, Failure> {
    let bars = Bars::on_terminal().filter(|_| detail != Detail::Nothing);
    let displays: Vec<Display> = jobs
        .iter()
        .map(|job| match (&bars, detail) {
            (_, Detail::Nothing) => Display::Nothing,
            (Some(bars), _) => Display::Bar {
                bar: bars.add(&format!("  {}", job.name)),
                moves_by_itself: detail == Detail::Jobs,
            },
            (None, _) => Display::Lines { last: None },
        })
        .collect();
    // One job's bar is the sum of its nodes'; of several jobs each moves with its own count.
    let whole = match displays.as_slice() {
        [Display::Bar { bar, .. }] => Some(bar.clone()),
        _ => None,
    };
    let each = jobs
        .iter()
        .zip(displays)
        .map(|(job, display)| one(client.clone(), job.clone(), display));
    let all = futures::future::try_join_all(each);
    if detail != Detail::Nodes {
        return all.await;
    }
    let mut rows = NodeRows::new(client, Followed::Jobs(jobs.to_vec()), bars.as_ref(), whole);
    let views = tokio::select! {
        views = all => views,
        never = rows.follow() => match never {},
    };
    rows.last_look().await;
    views
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
    // The connection may be bad: the watcher tries again, ever more rarely, and the jobs go on meanwhile.
    until_end(watcher(api, config).default_backoff().boxed(), job, &mut display).await
}

async fn until_end<K>(
    mut events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Unpin,
    job: &Submitted,
    display: &mut Display,
) -> Result<JobView, Failure>
where
    for<'a> JobView: From<&'a K>,
{
    let mut unclaimed = pin!(tokio::time::sleep(UNCLAIMED_LIMIT));
    let mut untouched = true;
    let mut seen = false;
    let deleted = || Failure::bad(format!("{} {} was deleted before it ended", job.kind, job.name));
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = &mut unclaimed, if untouched => {
                untouched = false;
                display.no_controller(job);
                continue;
            }
        };
        match event {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                seen = true;
                let view = JobView::from(&object);
                untouched &= view.phase == Phase::New;
                display.show(&view);
                if view.phase.is_final() {
                    return Ok(view);
                }
            }
            Ok(Some(watcher::Event::Delete(_))) => return Err(deleted()),
            // A list without it: it was deleted while the connection was down, or before the first list.
            Ok(Some(watcher::Event::InitDone)) if !seen => return Err(deleted()),
            Ok(Some(watcher::Event::Init)) => seen = false,
            Ok(Some(watcher::Event::InitDone)) => {}
            Ok(None) => return Err(Failure::unreachable("the API server ended the watch for good")),
            Err(error) => display.trouble(&chain(&error)),
        }
    }
}

/// How one job is shown.
enum Display {
    Nothing,
    Bar { bar: Bar, moves_by_itself: bool },
    Lines { last: Option<String> },
}

impl Display {
    fn show(&mut self, view: &JobView) {
        match self {
            Self::Nothing => {}
            Self::Bar { bar, moves_by_itself } => {
                if *moves_by_itself || view.phase == Phase::Complete {
                    bar.move_to(bars::part((view.succeeded + view.failed).into(), view.desired.into()));
                }
                bar.say(&short(view));
                if view.phase.is_final() {
                    bar.finish(if view.phase == Phase::Failed {
                        Tone::Bad
                    } else {
                        Tone::Good
                    });
                }
            }
            Self::Lines { last } => {
                let line = long(view);
                if last.as_ref() != Some(&line) {
                    output::line(&line);
                    *last = Some(line);
                }
            }
        }
    }

    /// The job is as it was created.
    fn no_controller(&mut self, job: &Submitted) {
        match self {
            Self::Nothing => {}
            Self::Bar { bar, .. } => bar.say("no controller looks at it"),
            Self::Lines { last } => {
                let line = format!(
                    "{}/{}: no controller has looked at it for {} s; check that one runs and serves this kind",
                    job.kind.to_ascii_lowercase(),
                    job.name,
                    UNCLAIMED_LIMIT.as_secs()
                );
                output::line(&line);
                *last = Some(line);
            }
        }
    }

    fn trouble(&self, text: &str) {
        match self {
            Self::Bar { bar, .. } => bar.say("waits for the API server"),
            Self::Lines { .. } => output::error(&format!("waiting for the API server: {text}")),
            Self::Nothing => {}
        }
    }
}

fn long(view: &JobView) -> String {
    if view.phase == Phase::New {
        return format!("{}: {}", view.title(), view.phase.as_str());
    }
    let message = if view.message.is_empty() {
        String::new()
    } else {
        format!("; {}", view.message)
    };
    format!(
        "{}: {}, {}/{} done, {} failed{message}",
        view.title(),
        view.phase.as_str(),
        view.succeeded,
        view.desired,
        view.failed,
    )
}

/// At most 31 characters, beside a bar.
fn short(view: &JobView) -> String {
    let unit = if view.kind == "ImageListPullJob" {
        "images"
    } else {
        "nodes"
    };
    let count = format!("{}/{} {unit}", view.succeeded, view.desired);
    let bytes = view.bytes_done.filter(|bytes| 0 < *bytes);
    let bytes = bytes
        .map(|bytes| format!("  {}", ByteSize(u64::try_from(bytes).unwrap_or(0))))
        .unwrap_or_default();
    match view.eta_seconds.filter(|_| !view.phase.is_final()) {
        Some(seconds) => format!("{count}{bytes}  {seconds} s left"),
        None => format!("{count}{bytes}  {}", view.phase.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use larder_api::{ImagePullJobSpec, ImagePullJobStatus};
    use rstest::rstest;

    #[test]
    fn what_stands_beside_a_bar_is_short() {
        let view = JobView {
            kind: "ImageListPullJob",
            desired: 10,
            succeeded: 10,
            bytes_done: Some(1023 * 1024 * 1024),
            phase: Phase::Complete,
            ..JobView::default()
        };
        assert_eq!(short(&view), "10/10 images  1023.0 MiB  Complete");
        assert_eq!(short(&JobView::default()), "0/0 nodes  New");
    }

    #[rstest]
    #[case::no_controller(
        None,
        "imagepulljob/web: no controller has looked at it for 10 s; check that one runs and serves this kind"
    )]
    #[case::controller_runs(Some(ImagePullJobStatus { desired: 3, ..ImagePullJobStatus::default() }), "imagepulljob/web: Running, 0/3 done, 0 failed")]
    #[tokio::test(start_paused = true)]
    async fn a_job_without_a_controller(#[case] status: Option<ImagePullJobStatus>, #[case] says: &str) {
        let mut object = ImagePullJob::new("web", ImagePullJobSpec::default());
        object.status = status;
        let job = Submitted {
            kind: "ImagePullJob".into(),
            namespace: None,
            name: "web".into(),
        };
        let shown = [
            watcher::Event::Init,
            watcher::Event::InitApply(object),
            watcher::Event::InitDone,
        ];
        let events = stream::iter(shown.map(Ok)).chain(stream::pending());
        let mut display = Display::Lines { last: None };
        let end = until_end(events, &job, &mut display);
        assert!(
            tokio::time::timeout(UNCLAIMED_LIMIT * 2, end).await.is_err(),
            "it does not end"
        );
        assert!(matches!(&display, Display::Lines { last: Some(last) } if last == says));
    }
}
