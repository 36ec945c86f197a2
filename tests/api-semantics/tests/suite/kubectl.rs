//! What people type, with an old kubectl and with a current one.

use larder_testkit::Kubectl;
use rstest::rstest;
use serde_json::{Value, json};

use crate::examples;
use crate::kind::Kind;
use crate::server::{Server, name_of};
use crate::target::Target;

async fn create(server: &Server, kind: Kind, spec: &Value) -> String {
    let resource = kind.stored();
    let created = server.create(resource, &server.object(resource, spec)).await.accepted();
    name_of(&created).to_owned()
}

/// The only test that gives the examples their own names.
#[rstest]
#[tokio::test]
async fn applies_the_examples(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let mut arguments = vec!["apply".to_owned()];
    let examples = examples::all();
    for (file, _) in &examples {
        arguments.extend(["-f".to_owned(), file.to_string_lossy().into_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let first = server.kubectl_text(Kubectl::Debian, &arguments).await;
    assert_eq!(first.lines().count(), examples.len(), "{first}");
    assert!(first.lines().all(|line| line.ends_with(" created")), "{first}");
    for which in [Kubectl::Debian, Kubectl::Current] {
        let again = server.kubectl_text(which, &arguments).await;
        assert!(
            again.lines().all(|line| line.ends_with(" unchanged")),
            "{which:?}: {again}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn applies_a_change_and_takes_a_field_away(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.json");
    let apply = async |spec: Value| {
        let manifest = json!({
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "ImagePullJob",
            "metadata": {"name": "job"},
            "spec": spec,
        });
        std::fs::write(&file, manifest.to_string()).unwrap();
        server
            .kubectl_text(which, &["apply", "-f", &file.to_string_lossy()])
            .await;
        server.get(Kind::ImagePullJob.stored(), "job").await.accepted()["spec"].clone()
    };
    let first = apply(json!({"image": "nginx", "parallelism": 5, "pullPolicy": {"timeoutSeconds": 30}})).await;
    assert_eq!(first["parallelism"], 5);
    let second = apply(json!({"image": "nginx:1.27", "pullPolicy": {}})).await;
    assert_eq!(
        second,
        json!({
            "image": "nginx:1.27",
            "imagePullPolicy": "IfNotPresent",
            "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3},
            "completionPolicy": {"type": "Always"},
        })
    );
}

#[rstest]
#[tokio::test]
async fn tells_people_what_to_change(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    let name = create(&server, Kind::ImagePullJob, &json!({"image": "nginx"})).await;
    let patch = r#"{"spec":{"parallelism":"5%"}}"#;
    let output = server
        .kubectl(which, &["patch", "imagepulljob", &name, "--type=merge", "-p", patch])
        .await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("parallelism does not support percentage; give a number of nodes"),
        "{text}"
    );
}

/// The second of the guides' two ways to pull an image onto one node.
#[rstest]
#[tokio::test]
async fn patches_a_node_image_by_hand(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    let name = create(&server, Kind::NodeImage, &json!({})).await;
    let patch =
        r#"{"spec":{"images":{"ubuntu":{"tags":[{"tag":"latest","pullPolicy":{"ttlSecondsAfterFinished":300}}]}}}}"#;
    server
        .kubectl_text(which, &["patch", "nodeimage", &name, "--type=merge", "-p", patch])
        .await;
    let printed = server
        .kubectl_text(which, &["get", "nodeimage", &name, "-o", "json"])
        .await;
    let object: Value = serde_json::from_str(&printed).unwrap();
    let policy = json!({"ttlSecondsAfterFinished": 300, "timeoutSeconds": 600, "backoffLimit": 3});
    assert_eq!(
        object["spec"],
        json!({"images": {"ubuntu": {"tags": [{"tag": "latest", "pullPolicy": policy}]}}})
    );
}

#[rstest]
#[tokio::test]
async fn waits_for_a_condition(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    let specs = [
        (Kind::ImagePullJob, json!({"image": "nginx"})),
        (Kind::ImageListPullJob, json!({"images": ["nginx"]})),
        (
            Kind::ImagePrePullJob,
            json!({"imagePrePullTemplate": {"images": ["nginx"], "labelSelector": {}}}),
        ),
    ];
    for (kind, spec) in specs {
        let name = create(&server, kind, &spec).await;
        let running = json!({"status": {"conditions": [{"type": "Complete", "status": "False"}]}});
        server.patch_status(kind.stored(), &name, &running).await.accepted();

        let resource = format!("{}.{}/{name}", kind.plural(), kind.group());
        let complete = ["wait", "--for=condition=Complete", "--timeout=60s", &resource];
        let done = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        let (printed, written) = tokio::join!(
            server.kubectl_text(which, &complete),
            server.patch_status(kind.stored(), &name, &done)
        );
        written.accepted();
        assert!(printed.contains("condition met"), "{printed}");
    }
}

#[rstest]
#[tokio::test]
async fn waits_in_vain_for_another_condition(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    let name = create(&server, Kind::ImagePullJob, &json!({"image": "nginx"})).await;
    let done = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    let resource = Kind::ImagePullJob.stored();
    server.patch_status(resource, &name, &done).await.accepted();

    let job = format!("imagepulljob/{name}");
    let output = server
        .kubectl(which, &["wait", "--for=condition=Failed", "--timeout=1s", &job])
        .await;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("timed out waiting for the condition"), "{text}");
}

#[rstest]
#[tokio::test]
async fn explains_every_kind(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    for (path, said) in [
        ("imagepulljob.spec", "How many nodes may pull at the same time"),
        ("imagepulljob.spec.completionPolicy", "When the job ends"),
        ("imagelistpulljob.spec.images", "The images, each as in an ImagePullJob"),
        ("nodeimage.spec.images", "Entries by familiar image name"),
        (
            "imageprepulljob.spec.imagePrePullTemplate",
            "The share of nodes that may fail",
        ),
        ("imageprepulljob.status", "One entry per node"),
    ] {
        let printed = server.kubectl_text(which, &["explain", path]).await;
        let words: Vec<&str> = printed.split_whitespace().collect();
        assert!(words.join(" ").contains(said), "{path}: {printed}");
    }
}

#[rstest]
#[tokio::test]
async fn lists_the_kinds(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl,
) {
    let server = target.server().await;
    let mut found = Vec::new();
    for group in ["apps.kruise.io", "operations.kubeedge.io"] {
        let printed = server
            .kubectl_text(which, &["api-resources", "--api-group", group, "--no-headers"])
            .await;
        found.extend(
            printed
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
        );
    }
    found.sort();
    // kubectl 1.20 prints group and version too; the plural, no short name, the scope and the kind is what counts.
    let want = [
        ("imagelistpulljobs", "true ImageListPullJob"),
        ("imageprepulljobs", "false ImagePrePullJob"),
        ("imagepulljobs", "true ImagePullJob"),
        ("nodeimages", "false NodeImage"),
    ];
    assert_eq!(found.len(), want.len(), "{found:?}");
    for (line, (plural, rest)) in found.iter().zip(want) {
        assert!(line.starts_with(plural) && line.ends_with(rest), "{line}");
        assert_eq!(line.split_whitespace().count(), 4, "a short name in {line}");
    }
}
