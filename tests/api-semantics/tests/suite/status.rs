//! Spec and status are written apart from each other.

use rstest::rstest;
use serde_json::{Value, json};

use crate::full;
use crate::kind::Kind;
use crate::server::{MERGE_PATCH, Server, name_of};
use crate::target::Target;

async fn create(server: &Server, kind: Kind) -> Value {
    let object = server.object(kind.stored(), &full::objects(kind)[0].spec);
    server.create(kind.stored(), &object).await.accepted()
}

/// A change of the spec that is always right.
fn spec_change(kind: Kind) -> Value {
    match kind {
        Kind::ImagePullJob | Kind::ImageListPullJob => json!({"spec": {"parallelism": 77}}),
        Kind::NodeImage => json!({"spec": {"images": null}}),
        Kind::ImagePrePullJob => json!({"spec": {"imagePrePullTemplate": {"concurrency": 77}}}),
    }
}

#[rstest]
#[tokio::test]
async fn a_new_object_has_no_status(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for resource in Kind::ALL.into_iter().flat_map(Kind::versions) {
        let full = &full::objects(resource.kind)[0];
        let mut object = server.object(resource, &full.spec);
        object["status"] = full.status.clone();
        let created = server.create(resource, &object).await.accepted();
        assert_eq!(created.get("status"), None, "{resource:?}");
        assert_eq!(created["metadata"]["generation"], 1, "{resource:?}");
    }
}

#[rstest]
#[tokio::test]
async fn a_status_write_touches_nothing_else(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for kind in Kind::ALL {
        let created = create(&server, kind).await;
        let mut changed = created.clone();
        changed["status"] = full::objects(kind)[0].status.clone();
        for (field, value) in spec_change(kind)["spec"].as_object().unwrap() {
            changed["spec"][field] = value.clone();
        }
        changed["metadata"]["labels"] = json!({"sneaked": "in"});
        for resource in kind.versions() {
            changed["apiVersion"] = resource.api_version().into();
            let written = server.replace_status(resource, &changed).await.accepted();
            assert_eq!(written["spec"], created["spec"], "{resource:?}");
            assert_eq!(written["metadata"]["generation"], 1, "{resource:?}");
            assert_eq!(written["metadata"].get("labels"), None, "{resource:?}");
            assert_eq!(written["status"], changed["status"], "{resource:?}");
            changed["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_spec_write_leaves_the_status_alone(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for kind in Kind::ALL {
        let created = create(&server, kind).await;
        let status = full::objects(kind)[0].status.clone();
        let written = server
            .patch_status(kind.stored(), name_of(&created), &json!({ "status": status }))
            .await
            .accepted();
        assert_eq!(written["status"], status);
        for (expected_generation, resource) in [2, 2].into_iter().zip(kind.versions()) {
            let mut patch = spec_change(kind);
            patch["status"] = json!({"desired": 999});
            let patched = server
                .patch(resource, name_of(&created), MERGE_PATCH, &patch)
                .await
                .accepted();
            assert_eq!(patched["status"], status, "{resource:?}");
            assert_ne!(patched["spec"], created["spec"], "{resource:?}");
            assert_eq!(patched["metadata"]["generation"], expected_generation, "{resource:?}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_label_does_not_raise_the_generation(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for kind in Kind::ALL {
        let created = create(&server, kind).await;
        let patch = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
        let patched = server
            .patch(kind.stored(), name_of(&created), MERGE_PATCH, &patch)
            .await
            .accepted();
        assert_eq!(patched["metadata"]["generation"], 1);
        assert_ne!(
            patched["metadata"]["resourceVersion"],
            created["metadata"]["resourceVersion"]
        );
    }
}

#[rstest]
#[case::image_pull_job(Kind::ImagePullJob, json!({"desired": 0, "active": 0, "succeeded": 0, "failed": 0}))]
#[case::image_list_pull_job(Kind::ImageListPullJob, json!({"desired": 0, "active": 0, "completed": 0, "succeeded": 0}))]
#[case::node_image(Kind::NodeImage, json!({"desired": 0, "succeeded": 0, "failed": 0, "pulling": 0, "waiting": 0}))]
#[case::image_pre_pull_job(Kind::ImagePrePullJob, json!({"desired": 0, "succeeded": 0, "failed": 0}))]
#[tokio::test]
async fn counters_that_nobody_wrote_are_zero(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] kind: Kind,
    #[case] zeros: Value,
) {
    let server = target.server().await;
    for resource in kind.versions() {
        let created = create(&server, kind).await;
        let written = server
            .patch_status(resource, name_of(&created), &json!({"status": {}}))
            .await
            .accepted();
        assert_eq!(written["status"], zeros, "{resource:?}");
    }
}

#[rstest]
#[tokio::test]
async fn conditions_are_keyed_by_their_type(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for kind in [Kind::ImagePullJob, Kind::ImageListPullJob, Kind::ImagePrePullJob] {
        let created = create(&server, kind).await;
        let write = async |conditions: Value| {
            let patch = json!({"status": {"conditions": conditions}});
            server.patch_status(kind.stored(), name_of(&created), &patch).await
        };
        let written = write(json!([{"type": "Complete"}, {"type": "Failed"}]))
            .await
            .accepted();
        assert_eq!(
            written["status"]["conditions"],
            json!([{"type": "Complete"}, {"type": "Failed"}])
        );
        let without_type = write(json!([{"status": "True"}])).await.refused(422);
        // 1.30 names it without the first `status.`.
        assert!(
            without_type.contains("conditions[0].type: Required value"),
            "{without_type}"
        );
        let twice = write(json!([{"type": "Complete"}, {"type": "Complete"}]))
            .await
            .refused(422);
        assert!(twice.contains("conditions[1]: Duplicate value"), "{twice}");
    }
}

#[rstest]
#[tokio::test]
async fn what_upstream_requires_in_a_status_is_not_required(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let node = create(&server, Kind::NodeImage).await;
    let patch =
        json!({"status": {"imageStatuses": {"nginx": {"tags": [{"tag": "v1"}, {"phase": "Failed"}]}, "busybox": {}}}});
    let written = server
        .patch_status(Kind::NodeImage.old(), name_of(&node), &patch)
        .await
        .accepted();
    assert_eq!(written["status"]["imageStatuses"]["nginx"]["tags"][0]["tag"], "v1");

    let job = create(&server, Kind::ImagePrePullJob).await;
    let patch = json!({"status": {"nodeStatus": [{"nodeName": "edge-1"}]}});
    let written = server
        .patch_status(Kind::ImagePrePullJob.stored(), name_of(&job), &patch)
        .await
        .accepted();
    assert_eq!(written["status"]["nodeStatus"], json!([{"nodeName": "edge-1"}]));
}
