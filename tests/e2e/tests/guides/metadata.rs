//! Labels and annotations of a job reach the runtime with the pull, as those of a pod do.

use larder_runtime_proto::runtime::v1::PullImageRequest;
use prost::Message as _;

use crate::Guide;

/// Only the first node still lacks the image.
pub(crate) async fn reaches_the_runtime(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    guide.apply("imagepulljob-sandbox-config.yaml").await;
    let status = cluster.finished("job-with-metadata").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 3, 0));
    let recorder = cluster.nodes[0].recorder.as_ref().unwrap();
    let calls: Vec<PullImageRequest> = recorder
        .calls_of("PullImage")
        .iter()
        .flat_map(larder_testkit::Call::messages)
        .map(|message| PullImageRequest::decode(message).unwrap())
        .filter(|call| call.image.as_ref().is_some_and(|image| image.image == "nginx:1.9.1"))
        .collect();
    let [call] = calls.as_slice() else {
        panic!("one pull of nginx:1.9.1 was expected on the first node: {calls:?}");
    };
    let sandbox = call.sandbox_config.clone().unwrap();
    assert_eq!(
        sandbox.labels,
        [("io.kubernetes.image.app".to_owned(), "foo".to_owned())].into()
    );
    let annotations = [
        ("io.kubernetes.image.metrics.tags", "cluster=cn-shanghai"),
        ("apps.kruise.io/pulling-image-by", "kruise-daemon"),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(sandbox.annotations, annotations.into());
}
