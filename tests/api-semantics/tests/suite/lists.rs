//! Lists: whole, by selector, in pages, as tables.

use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::{Kind, Resource};
use crate::server::{Server, name_of};
use crate::target::Target;

/// Jobs with these names, in the namespace of the test.
async fn create(server: &Server, names: &[&str]) -> Resource {
    let resource = Kind::ImagePullJob.stored();
    for name in names {
        let (zone, number) = name.split_once('-').unwrap();
        let mut object = server.object(resource, &json!({"image": "nginx"}));
        object["metadata"]["name"] = (*name).into();
        object["metadata"]["labels"] = json!({"zone": zone, "number": number});
        if zone == "a" {
            object["metadata"]["labels"]["first"] = "yes".into();
        }
        server.create(resource, &object).await.accepted();
    }
    resource
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(name_of).collect()
}

#[rstest]
#[tokio::test]
async fn are_sorted_and_carry_a_version(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = create(&server, &["b-2", "a-1", "c-3", "a-10"]).await;
    for resource in resource.kind.versions() {
        let list = server.read(&resource.path(server.namespace())).await.accepted();
        assert_eq!(list["kind"], "ImagePullJobList");
        assert_eq!(list["apiVersion"], resource.api_version());
        assert_eq!(names(&list), ["a-1", "a-10", "b-2", "c-3"]);
        assert!(
            list["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
                > 0
        );
        for item in list["items"].as_array().unwrap() {
            assert_eq!(item["kind"], "ImagePullJob");
            assert_eq!(item["apiVersion"], resource.api_version());
        }
    }
}

#[rstest]
#[case::equal("zone=a", &["a-1", "a-10"])]
#[case::double_equal("zone==b", &["b-2"])]
#[case::not_equal("zone!=a", &["b-2", "c-3"])]
#[case::both("zone=a,number=10", &["a-10"])]
#[case::among("zone in (b, c)", &["b-2", "c-3"])]
#[case::not_among("zone notin (b, c)", &["a-1", "a-10"])]
#[case::there("first", &["a-1", "a-10"])]
#[case::not_there("!first", &["b-2", "c-3"])]
#[case::absent_is_not_equal("first!=yes", &["b-2", "c-3"])]
#[case::greater("number>2", &["a-10", "c-3"])]
#[case::nothing("zone=x", &[])]
#[tokio::test]
async fn by_label(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] selector: &str,
    #[case] want: &[&str],
) {
    let server = target.server().await;
    let resource = create(&server, &["b-2", "a-1", "c-3", "a-10"]).await;
    let encoded = selector
        .replace(' ', "%20")
        .replace('=', "%3D")
        .replace('!', "%21")
        .replace('>', "%3E");
    let path = format!("{}?labelSelector={encoded}", resource.path(server.namespace()));
    assert_eq!(names(&server.read(&path).await.accepted()), want);
}

#[rstest]
#[case::label("labelSelector=zone%20in%20a", "unable to parse requirement")]
#[case::field("fieldSelector=spec.image%3Dnginx", "field label not supported")]
#[case::field_without_value("fieldSelector=metadata.name", "invalid selector")]
#[case::limit("limit=many", "")]
#[case::continuation("continue=garbage&limit=2", "continue key is not valid")]
#[tokio::test]
async fn by_something_that_cannot_be(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] query: &str,
    #[case] text: &str,
) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let answer = server
        .read(&format!("{}?{query}", resource.path(server.namespace())))
        .await;
    assert_eq!(answer.body["reason"], "BadRequest", "{}", answer.body);
    let message = answer.refused(400);
    assert!(message.contains(text), "{message}");
}

#[rstest]
#[tokio::test]
async fn by_name(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = create(&server, &["b-2", "a-1"]).await;
    let path = resource.path(server.namespace());
    let list = server
        .read(&format!("{path}?fieldSelector=metadata.name%3Da-1"))
        .await
        .accepted();
    assert_eq!(names(&list), ["a-1"]);
    let all = format!("/apis/{}/{}", resource.api_version(), resource.kind.plural());
    let here = format!("{all}?fieldSelector=metadata.namespace%3D{}", server.namespace());
    assert_eq!(names(&server.read(&here).await.accepted()), ["a-1", "b-2"]);
}

#[rstest]
#[tokio::test]
async fn come_in_pages_of_one_moment(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = create(&server, &["a-1", "a-2", "a-3", "a-4", "a-5"]).await;
    let path = resource.path(server.namespace());
    let first = server.read(&format!("{path}?limit=2")).await.accepted();
    assert_eq!(names(&first), ["a-1", "a-2"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);

    create(&server, &["a-33"]).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = server
        .read(&format!("{path}?limit=2&continue={token}"))
        .await
        .accepted();
    assert_eq!(names(&second), ["a-3", "a-4"], "an object that came later is not in it");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );

    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = server
        .read(&format!("{path}?limit=2&continue={token}"))
        .await
        .accepted();
    assert_eq!(names(&third), ["a-5"]);
    assert_eq!(third["metadata"]["continue"].as_str().unwrap_or_default(), "");
}

async fn as_other(server: &Server, path: &str, accept: &str) -> Value {
    let request = Request::get(path).header(http::header::ACCEPT, accept);
    server.answer(request.body(Vec::new()).unwrap()).await.accepted()
}

#[rstest]
#[tokio::test]
async fn as_a_table(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = create(&server, &["a-1", "b-2"]).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = as_other(&server, &resource.path(server.namespace()), accept).await;
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let columns = table["columnDefinitions"].as_array().unwrap();
    let shown = |field: &str| columns.iter().map(|column| column[field].clone()).collect::<Vec<_>>();
    assert_eq!(
        json!(shown("name")),
        json!([
            "Name", "TOTAL", "ACTIVE", "SUCCEED", "FAILED", "AGE", "MESSAGE", "IMAGE", "BYTES", "DONE", "ETA",
            "PRIORITY"
        ])
    );
    assert_eq!(json!(shown("priority")), json!([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]));
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["cells"].as_array().unwrap().len(), columns.len());
    assert_eq!(
        (&rows[0]["cells"][0], &rows[0]["cells"][7]),
        (&json!("a-1"), &json!("nginx"))
    );
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(rows[0]["object"]["metadata"]["name"], "a-1");
}

#[rstest]
#[tokio::test]
async fn as_metadata_alone(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = create(&server, &["a-1"]).await;
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = as_other(&server, &resource.path(server.namespace()), accept).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    let item = &list["items"][0];
    assert_eq!((&item["metadata"]["name"], item.get("spec")), (&json!("a-1"), None));
}
