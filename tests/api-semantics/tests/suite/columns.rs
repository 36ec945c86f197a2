//! What `kubectl get` prints. Scripts cut these columns out; a change here breaks them.

use larder_testkit::Kubectl;
use rstest::rstest;
use serde_json::json;

use crate::full;
use crate::kind::{Kind, Resource};
use crate::server::{Server, name_of};
use crate::target::Target;

/// Makes an object with every field and gives back its name.
async fn create(server: &Server, kind: Kind) -> String {
    let full = &full::objects(kind)[0];
    let resource = kind.stored();
    let created = server
        .create(resource, &server.object(resource, &full.spec))
        .await
        .accepted();
    let name = name_of(&created).to_owned();
    let status = json!({"status": full.status});
    server.patch_status(resource, &name, &status).await.accepted();
    name
}

/// Header and first row, cut where kubectl puts three blanks; name and age, which nobody knows beforehand, by a word.
fn table(printed: &str, name: &str) -> [Vec<String>; 2] {
    let mut lines = printed.lines().map(|line| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect::<Vec<_>>()
    });
    let header = lines.next().unwrap_or_default();
    let mut row = lines.next().unwrap_or_default();
    let age = header.iter().position(|cell| cell == "AGE").expect("a column AGE");
    let printed_age = row[age].trim_end_matches(['s', 'm', 'h', 'd']);
    assert!(
        printed_age.parse::<u32>().is_ok() || printed_age.contains('m'),
        "no age: {row:?}"
    );
    "some age".clone_into(&mut row[age]);
    assert_eq!(row[0], name);
    "its name".clone_into(&mut row[0]);
    [header, row]
}

async fn check(server: &Server, resource: Resource, narrow: [&[&str]; 2], wide: [&[&str]; 2]) {
    let name = create(server, resource.kind).await;
    let argument = resource.for_kubectl();
    for which in [Kubectl::Debian, Kubectl::Current] {
        let printed = server.kubectl_text(which, &["get", &argument, &name]).await;
        assert_eq!(table(&printed, &name), narrow.map(owned), "{which:?} {argument}");

        let printed = server
            .kubectl_text(which, &["get", &argument, &name, "-o", "wide"])
            .await;
        let all = [0, 1].map(|line| [narrow[line], wide[line]].concat());
        assert_eq!(
            table(&printed, &name),
            all.map(|cells| owned(&cells)),
            "{which:?} {argument} -o wide"
        );
    }
}

fn owned(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

#[rstest]
#[tokio::test]
async fn of_an_image_pull_job(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kind::stored, Kind::old)] version: fn(Kind) -> Resource,
) {
    let narrow: [&[&str]; 2] = [
        &["NAME", "TOTAL", "ACTIVE", "SUCCEED", "FAILED", "AGE", "MESSAGE"],
        &["its name", "10", "1", "5", "4", "some age", "job has completed"],
    ];
    let wide: [&[&str]; 2] = [
        &["IMAGE", "BYTES", "DONE", "ETA", "PRIORITY"],
        &["nginx:1.9.1", "10000000000", "9999999999", "5", "-7"],
    ];
    check(&target.server().await, version(Kind::ImagePullJob), narrow, wide).await;
}

#[rstest]
#[tokio::test]
async fn of_an_image_list_pull_job(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kind::stored, Kind::old)] version: fn(Kind) -> Resource,
) {
    let narrow: [&[&str]; 2] = [
        &["NAME", "TOTAL", "SUCCEEDED", "COMPLETED", "AGE"],
        &["its name", "2", "1", "2", "some age"],
    ];
    let wide: [&[&str]; 2] = [
        &["ACTIVE", "BYTES", "DONE", "ETA", "PRIORITY"],
        &["1", "10000000000", "9999999999", "5", "-7"],
    ];
    check(&target.server().await, version(Kind::ImageListPullJob), narrow, wide).await;
}

#[rstest]
#[tokio::test]
async fn of_a_node_image(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[values(Kind::stored, Kind::old)] version: fn(Kind) -> Resource,
) {
    let narrow: [&[&str]; 2] = [
        &["NAME", "DESIRED", "PULLING", "SUCCEED", "FAILED", "AGE"],
        &["its name", "5", "1", "1", "1", "some age"],
    ];
    let wide: [&[&str]; 2] = [&["WAITING", "RUNTIME", "AGENT"], &["2", "containerd 2.1.9", "0.1.0"]];
    check(&target.server().await, version(Kind::NodeImage), narrow, wide).await;
}

#[rstest]
#[case::stored(Kind::ImagePrePullJob.stored(), "PHASE", "Failure")]
#[case::old(Kind::ImagePrePullJob.old(), "STATE", "Failed")]
#[tokio::test]
async fn of_an_image_pre_pull_job(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] resource: Resource,
    #[case] column: &str,
    #[case] value: &str,
) {
    let narrow: [&[&str]; 2] = [
        &["NAME", column, "NODES", "DONE", "FAILED", "AGE"],
        &["its name", value, "2", "1", "1", "some age"],
    ];
    let wide: [&[&str]; 2] = [
        &["REASON", "ETA", "PRIORITY"],
        &["too many nodes failed", "5", "2147483647"],
    ];
    check(&target.server().await, resource, narrow, wide).await;
}

/// As people type it and as the guides' FAQ shows it: no version, singular, all objects of the namespace.
#[rstest]
#[tokio::test]
async fn are_the_guides_header(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    create(&server, Kind::ImagePullJob).await;
    for which in [Kubectl::Debian, Kubectl::Current] {
        let printed = server.kubectl_text(which, &["get", "imagepulljob"]).await;
        let header: Vec<&str> = printed.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            header.join(" "),
            "NAME TOTAL ACTIVE SUCCEED FAILED AGE MESSAGE",
            "{which:?}"
        );
    }
}

/// A job that nobody has looked at yet.
#[rstest]
#[tokio::test]
async fn are_there_before_the_first_status(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let created = server
        .create(resource, &server.object(resource, &json!({"image": "nginx"})))
        .await
        .accepted();
    for which in [Kubectl::Debian, Kubectl::Current] {
        let printed = server
            .kubectl_text(which, &["get", "imagepulljob", name_of(&created)])
            .await;
        let row: Vec<&str> = printed.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row.len(), 2, "name and age, and nothing else: {printed}");
    }
}
