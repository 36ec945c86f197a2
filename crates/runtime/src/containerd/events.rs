//! Images that somebody deletes or moves, from containerd's event stream.

use futures::{StreamExt as _, stream};
use larder_model::ImageRef;
use larder_runtime_proto::containerd::{
    services::{
        events::v1::{SubscribeRequest, events_client::EventsClient},
        images::v1::{ImageDelete, ImageUpdate},
    },
    types::Envelope,
};
use prost::Message as _;
use tonic::{Streaming, transport::Channel};
use tracing::debug;

use super::{
    filter, references,
    services::{Services, scoped},
};
use crate::{ImageEvent, ImageEvents};

const DELETED: &str = "/images/delete";
const UPDATED: &str = "/images/update";

enum Listening {
    Asked(EventsClient<Channel>),
    Hearing(Streaming<Envelope>),
}

/// Begins to listen when the stream is first polled. containerd answers a subscription only with its first event, so
/// there is nothing to wait for here.
pub(super) fn subscribe(services: &Services) -> ImageEvents {
    let heard = stream::unfold(Listening::Asked(services.events()), |mut listening| async move {
        loop {
            let mut events = match listening {
                Listening::Asked(mut client) => {
                    let filters = vec![filter::topic(DELETED), filter::topic(UPDATED)];
                    match client.subscribe(scoped(SubscribeRequest { filters })).await {
                        Ok(answer) => answer.into_inner(),
                        Err(status) => {
                            debug!(status = status.message(), "image events cannot be heard");
                            return None;
                        }
                    }
                }
                Listening::Hearing(events) => events,
            };
            match events.message().await {
                Ok(Some(envelope)) => {
                    listening = Listening::Hearing(events);
                    if let Some(event) = image_event(&envelope) {
                        return Some((event, listening));
                    }
                }
                Ok(None) => return None,
                Err(status) => {
                    debug!(status = status.message(), "image events ended");
                    return None;
                }
            }
        }
    });
    heard.boxed()
}

/// The event, unless it is about a name that nobody uses: an image id or one of our pins.
fn image_event(envelope: &Envelope) -> Option<ImageEvent> {
    let value = envelope.event.as_ref()?.value.as_slice();
    let (name, event): (String, fn(ImageRef) -> ImageEvent) = match envelope.topic.as_str() {
        DELETED => (ImageDelete::decode(value).ok()?.name, ImageEvent::Deleted),
        UPDATED => (ImageUpdate::decode(value).ok()?.name, ImageEvent::Updated),
        _ => return None,
    };
    if references::is_pin(&name) {
        return None;
    }
    ImageRef::parse(&name).ok().map(event)
}

#[cfg(test)]
mod tests {
    use prost_types::Any;
    use rstest::rstest;

    use super::*;

    fn envelope(topic: &str, name: &str) -> Envelope {
        let deleted = ImageDelete { name: name.to_owned() };
        Envelope {
            topic: topic.to_owned(),
            event: Some(Any {
                type_url: "containerd.services.images.v1.ImageDelete".to_owned(),
                value: deleted.encode_to_vec(),
            }),
            ..Envelope::default()
        }
    }

    #[rstest]
    #[case::tag(DELETED, "docker.io/library/app:1", Some("deleted app:1"))]
    #[case::moved(UPDATED, "docker.io/library/app:1", Some("updated app:1"))]
    #[case::image_id(
        DELETED,
        "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        None
    )]
    #[case::own_pin(DELETED, "larder.local/pin/aaaa", None)]
    #[case::other_topic("/snapshot/remove", "docker.io/library/app:1", None)]
    fn events(#[case] topic: &str, #[case] name: &str, #[case] expected: Option<&str>) {
        let seen = image_event(&envelope(topic, name)).map(|event| match event {
            ImageEvent::Deleted(image) => format!("deleted {image}"),
            ImageEvent::Updated(image) => format!("updated {image}"),
        });
        assert_eq!(seen.as_deref(), expected);
    }
}
