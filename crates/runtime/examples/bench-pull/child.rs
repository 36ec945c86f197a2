//! A process that pulls as the agent does: `child SOCKET IMAGE…`, all images at once.

use std::path::Path;

use futures::future::join_all;
use larder_model::ImageRef;
use larder_registry::fetch::FetchSettings;
use larder_runtime::PullRequest;

use crate::world;

pub(crate) async fn run(arguments: &[String]) {
    let [socket, images @ ..] = arguments else { return };
    let runtime = world::runtime(Path::new(socket), Some(FetchSettings::default())).await;
    let pulls = images.iter().map(|image| {
        let request = PullRequest::new(ImageRef::parse(image).unwrap());
        let runtime = &runtime;
        async move { runtime.pull(&request).await.unwrap() }
    });
    join_all(pulls).await;
}
