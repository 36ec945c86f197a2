//! The server on a socket: tokens, TLS, an end in good order.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config as ClientConfig, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use larder_localplane::{Config, ListenError, Listening, Localplane, Tokens};
use secrecy::{ExposeSecret, SecretString};

pub(crate) async fn client(listening: &Listening, token: &str) -> Client {
    let text = listening.kubeconfig(&SecretString::from(token));
    let kubeconfig = Kubeconfig::from_yaml(text.expose_secret()).unwrap();
    let config = ClientConfig::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn listen(plane: &Localplane) -> Listening {
    plane
        .listen("127.0.0.1:0".parse().unwrap(), Tokens::admin("right".into()))
        .await
        .unwrap()
}

#[tokio::test]
async fn the_token_opens_and_no_other_does() {
    let plane = crate::http::plane().await;
    let listening = listen(&plane).await;
    let namespaces: Api<Namespace> = Api::all(client(&listening, "right").await);
    let names: Vec<String> = namespaces
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);

    let namespaces: Api<Namespace> = Api::all(client(&listening, "wrong").await);
    match namespaces.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_loopback_is_served() {
    let plane = crate::http::plane().await;
    let refused = plane.listen("0.0.0.0:0".parse().unwrap(), Tokens::default()).await;
    assert!(matches!(refused, Err(ListenError::NotLoopback(_))));
}

#[tokio::test]
async fn a_stopped_server_has_kept_what_it_answered_and_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(larder_api::crds());
    config.data = Some(folder.path().join("objects.redb"));
    let plane = Localplane::start(config.clone()).await.unwrap();
    let listening = listen(&plane).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&listening, "right").await);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("kept".into());
    let stored = maps.create(&PostParams::default(), &map).await.unwrap();
    drop(maps);
    plane.shutdown().await;
    listening.stopped().await;

    let plane = Localplane::start(config).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(plane.service(), "default"));
    assert_eq!(maps.get("kept").await.unwrap(), stored);
    map.metadata.name = Some("next".into());
    let next = maps.create(&PostParams::default(), &map).await.unwrap();
    let revision = |map: &ConfigMap| map.resource_version().unwrap().parse::<u64>().unwrap();
    assert!(revision(&stored) < revision(&next));
}

/// A client that still sends while it is refused hears the refusal all the same.
#[tokio::test]
async fn refusals_reach_a_client_that_is_still_sending() {
    let plane = crate::http::plane().await;
    let listening = listen(&plane).await;
    let client = client(&listening, "right").await;
    let large = vec![b'x'; 4 << 20];
    for (path, code) in [
        ("/api/v1/namespaces/default/configmaps", 413),
        ("/api/v1/nodes/n/nonsense", 404),
    ] {
        for _ in 0..10 {
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(large.clone())
                .unwrap();
            match client.request::<serde_json::Value>(request).await {
                Err(kube::Error::Api(status)) => assert_eq!(status.code, code, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
    }
}
