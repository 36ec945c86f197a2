//! A write through one version loses nothing that only the other would know.

use rstest::rstest;
use serde_json::Value;

use crate::full;
use crate::kind::{Kind, Resource};
use crate::server::{Server, name_of};
use crate::target::Target;

/// Makes an object with every field, through `resource`.
async fn create(server: &Server, resource: Resource, full: &full::Full) -> Value {
    let created = server
        .create_strictly(resource, &server.object(resource, &full.spec))
        .await
        .accepted();
    let mut with_status = created.clone();
    with_status["status"] = full.status.clone();
    let complete = server.replace_status(resource, &with_status).await.accepted();
    assert_eq!(
        complete["spec"], full.spec,
        "{resource:?} completed a spec that was complete"
    );
    assert_eq!(
        complete["status"], full.status,
        "{resource:?} changed a status that was complete"
    );
    complete
}

#[rstest]
#[tokio::test]
async fn labelling_through_one_version_loses_nothing_of_the_other(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kind::ImagePullJob, Kind::ImageListPullJob, Kind::NodeImage, Kind::ImagePrePullJob)] kind: Kind,
) {
    let server = target.server().await;
    let [stored, old] = kind.versions();
    for (through, other) in [(stored, old), (old, stored)] {
        for full in full::objects(kind) {
            let object = create(&server, other, &full).await;
            let mut read = server.get(through, name_of(&object)).await.accepted();
            assert_eq!(read["apiVersion"], through.api_version());

            read["metadata"]["labels"]["seen"] = "yes".into();
            let labelled = server.replace(through, &read).await.accepted();
            server.replace_status(through, &labelled).await.accepted();

            let after = server.get(other, name_of(&object)).await.accepted();
            assert_eq!(after["metadata"]["labels"]["seen"], "yes");
            assert_eq!(after["metadata"]["generation"], object["metadata"]["generation"]);
            assert_eq!(after["spec"], full.spec, "lost through {through:?}");
            assert_eq!(after["status"], full.status, "lost through {through:?}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn both_versions_show_the_same_object(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for kind in Kind::ALL {
        for full in full::objects(kind) {
            let object = create(&server, kind.stored(), &full).await;
            let mut old = server.get(kind.old(), name_of(&object)).await.accepted();
            old["apiVersion"] = object["apiVersion"].clone();
            // Managed fields name the version that each write came through.
            assert_eq!(old["metadata"]["uid"], object["metadata"]["uid"]);
            assert_eq!(
                old["metadata"]["resourceVersion"],
                object["metadata"]["resourceVersion"]
            );
            assert_eq!(old["spec"], object["spec"]);
            assert_eq!(old["status"], object["status"]);
        }
    }
}
