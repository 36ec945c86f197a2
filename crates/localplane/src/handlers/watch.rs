//! A watch: what is there if asked for, what was missed, then what happens, until its time is over.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::StatusCode;
use rand::Rng;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::error::TryRecvError,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use super::{
    RequestContext,
    list::{Selection, list_options, revision},
};
use crate::{
    answer,
    error::{ApiError, Cause},
    object,
    registry::Shape,
    request::Format,
    store::{Start, Subscription},
    stored::{Shared, Stored},
    watch::{Event, EventType, WatchScope},
};

/// How often a bookmark is sent.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// Frames are gathered up to this size if more than one is waiting.
const PIECE: usize = 64 << 10;

pub(super) fn watch(context: RequestContext) -> Result<Response, ApiError> {
    let selection = Selection::of(&context.target, &context.query)?;
    let (start, send_end) = start(&context)?;
    let current = context.plane.store.revision();
    if let Some(version) = revision(&context.query)?.filter(|version| current < *version) {
        // The store is not the one that the client knows. Code 410 is what all clients answer with a new list; kube-apiserver
        // sends nothing until the revision is reached.
        let error = ApiError::expired(format!("Too large resource version: {version}, current: {current}"));
        return Ok(answer::json_response(StatusCode::OK, error_frame(&error)));
    }
    let scope = WatchScope {
        namespace: match &context.target.namespace {
            Some(namespace) => Some(namespace.clone()),
            // A name is unique only where there are no namespaces.
            None if context.target.resource.namespaced => None,
            None => Some(String::new()),
        },
        name: selection.fields.name().map(str::to_owned),
    };
    let deadline = Instant::now() + lifetime(&context)?;
    let plane = Arc::clone(&context.plane);
    let subscription = match plane.store.subscribe(context.target.resource.id, scope, start) {
        Ok(subscription) => subscription,
        Err(compacted) => {
            let asked_for = match start {
                Start::After(revision) => revision,
                Start::Now { .. } => 0,
            };
            let error = ApiError::expired(format!(
                "too old resource version: {asked_for} ({})",
                compacted.newest + 1
            ));
            return Ok(answer::json_response(StatusCode::OK, error_frame(&error)));
        }
    };
    let watching = WatchStream::new(context, selection, subscription, deadline, send_end);
    let frames = stream::unfold(watching, |mut watching| async move {
        let piece = watching.next().await?;
        Some((Ok::<_, Infallible>(piece), watching))
    });
    Ok(answer::json_response(StatusCode::OK, Body::from_stream(frames)))
}

/// Where to start, and whether the end of the first part is announced.
fn start(context: &RequestContext) -> Result<(Start, bool), ApiError> {
    let query = &context.query;
    let version = revision(query)?;
    let send_initial = query.switch_if_given("sendInitialEvents");
    match (query.get("resourceVersionMatch"), send_initial) {
        (None, None) | (Some("NotOlderThan"), Some(_)) => {}
        (_, None) => {
            return Err(list_options(&Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )));
        }
        (_, Some(_)) => {
            return Err(list_options(&Cause::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )));
        }
    }
    let bookmarks = query.switch("allowWatchBookmarks");
    Ok(match (send_initial, version) {
        (Some(true), _) => (Start::Now { initial: true }, bookmarks),
        (Some(false), None | Some(0)) => (Start::Now { initial: false }, false),
        (None, None | Some(0)) => (Start::Now { initial: true }, false),
        (_, Some(version)) => (Start::After(version), false),
    })
}

/// How long the watch lives. Without `timeoutSeconds`, chosen at random so that watches opened together do not end together.
fn lifetime(context: &RequestContext) -> Result<Duration, ApiError> {
    let seconds = match context.query.number::<u64>("timeoutSeconds")? {
        Some(seconds) if 0 < seconds => seconds,
        _ => rand::rng().random_range(1800..3600),
    };
    Ok(Duration::from_secs(seconds.min(86_400)))
}

struct WatchStream {
    context: RequestContext,
    api_version: String,
    selection: Selection,
    subscription: Subscription,
    initial: std::vec::IntoIter<Shared>,
    backlog: std::vec::IntoIter<Arc<Event>>,
    ready: VecDeque<Bytes>,
    send_end: bool,
    columns_sent: bool,
    bookmarks: Option<Interval>,
    /// A bookmark is due; everything up to this revision was in the queue when it was read.
    bookmark_due: Option<u64>,
    /// The revision of the last event that was taken from the queue.
    taken: u64,
    deadline: Instant,
    finished: bool,
}

impl WatchStream {
    fn new(
        context: RequestContext,
        selection: Selection,
        mut subscription: Subscription,
        deadline: Instant,
        send_end: bool,
    ) -> Self {
        let bookmarks = context.query.switch("allowWatchBookmarks").then(|| {
            let mut ticks = interval(BOOKMARKS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.reset();
            ticks
        });
        Self {
            api_version: context.target.version().api_version(),
            initial: std::mem::take(&mut subscription.initial).into_iter(),
            backlog: std::mem::take(&mut subscription.backlog).into_iter(),
            context,
            selection,
            subscription,
            ready: VecDeque::new(),
            send_end,
            columns_sent: false,
            bookmarks,
            bookmark_due: None,
            taken: 0,
            deadline,
            finished: false,
        }
    }

    /// The next piece of the answer, or its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.gather();
            match self.ready.len() {
                0 if self.finished => return None,
                0 => self.wait().await,
                1 => return self.ready.pop_front(),
                _ => {
                    let mut piece = BytesMut::new();
                    while let Some(frame) = self.ready.pop_front() {
                        piece.extend_from_slice(&frame);
                    }
                    return Some(piece.freeze());
                }
            }
        }
    }

    /// Renders what is there without waiting.
    fn gather(&mut self) {
        let mut size: usize = self.ready.iter().map(Bytes::len).sum();
        while size < PIECE && !self.finished {
            let frame = if let Some(object) = self.initial.next() {
                self.selection.matches(&object).then(|| self.frame("ADDED", &object))
            } else if let Some(event) = self.backlog.next() {
                self.render(&event)
            } else if self.send_end {
                self.send_end = false;
                Some(self.bookmark(self.subscription.revision, true))
            } else {
                match self.subscription.events.try_recv() {
                    Ok(event) => self.take(&event),
                    // The queue was never full, or the sender would be gone: nothing before this revision is missing.
                    Err(TryRecvError::Empty) => match self.bookmark_due.take() {
                        Some(revision) => Some(self.bookmark(revision.max(self.taken), false)),
                        None => return,
                    },
                    Err(TryRecvError::Disconnected) => {
                        self.finished = true;
                        let error = ApiError::expired("the watch fell too far behind and lost events; list again");
                        Some(error_frame(&error).into())
                    }
                }
            };
            if let Some(frame) = frame {
                size += frame.len();
                self.ready.push_back(frame);
            }
        }
    }

    async fn wait(&mut self) {
        let stop = self.context.plane.stop.clone();
        let tick = async {
            match &mut self.bookmarks {
                Some(ticks) => drop(ticks.tick().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A closed queue is reported by `gather`.
            event = self.subscription.events.recv() => if let Some(event) = event {
                let frame = self.take(&event);
                self.ready.extend(frame);
            },
            () = tick => self.bookmark_due = Some(self.subscription.published()),
            () = sleep_until(self.deadline) => self.finished = true,
            () = stop.cancelled() => self.finished = true,
        }
    }

    /// An event from the queue, as this watch's selector sees it.
    fn take(&mut self, event: &Event) -> Option<Bytes> {
        self.taken = event.revision();
        self.render(event)
    }

    /// The event as this watch's selector sees it.
    fn render(&mut self, event: &Event) -> Option<Bytes> {
        let before = event.previous.as_ref().filter(|object| self.selection.matches(object));
        let now = event.kind != EventType::Deleted && self.selection.matches(&event.object);
        match (before, now) {
            (None, false) => None,
            (None, true) => Some(self.line("ADDED", event)),
            (Some(_), true) => Some(self.line("MODIFIED", event)),
            (Some(_), false) if event.kind == EventType::Deleted => Some(self.line("DELETED", event)),
            // It lives on outside of what is selected; the watch sees its last state inside, at this revision.
            (Some(before), false) => {
                let mut object = before.object(&self.api_version);
                let revision = event.revision();
                object::set_meta(&mut object, "resourceVersion", Some(revision.to_string().into()));
                let last = Stored::new(&self.context.target.resource, object, revision, before.written);
                Some(self.frame("DELETED", &last))
            }
        }
    }

    /// The line of an event, shared with other watchers if they get the same type of event in the same form.
    fn line(&mut self, event_type: &'static str, event: &Event) -> Bytes {
        let target = &self.context.target;
        if self.context.format == Format::Whole && target.version().shape == Shape::Stored {
            return event.line(event_type, target.version, &self.api_version);
        }
        self.frame(event_type, &event.object)
    }

    fn frame(&mut self, event: &'static str, object: &Stored) -> Bytes {
        let target = &self.context.target;
        if self.context.format == Format::Whole && target.version().shape == Shape::Stored {
            return object.frame(event, &self.api_version);
        }
        let now = self.context.plane.store.now();
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        let text = answer::one_json(target, object, self.context.format, &self.context.query, now, columns);
        let mut frame = BytesMut::with_capacity(text.len() + 40);
        frame.extend_from_slice(format!(r#"{{"type":"{event}","object":"#).as_bytes());
        frame.extend_from_slice(&text);
        frame.extend_from_slice(b"}\n");
        frame.freeze()
    }

    fn bookmark(&self, revision: u64, end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.context.format {
            Format::Whole => json!({
                "kind": self.context.target.resource.kind,
                "apiVersion": self.api_version,
                "metadata": metadata,
            }),
            Format::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            }),
            Format::Table => json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": [],
                "rows": [],
            }),
        };
        frame_of("BOOKMARK", &object).into()
    }
}

fn frame_of(event: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": event, "object": object}))
}

fn error_frame(error: &ApiError) -> String {
    frame_of("ERROR", &error.status())
}
