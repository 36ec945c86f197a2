//! Values of OpenKruise's chart that have other names here.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Map, Value, json};

use crate::chart::{folder, template};

/// The defaults of OpenKruise's chart 1.9, in the same nesting.
fn openkruise_defaults() -> Value {
    let resources = json!({ "limits": { "cpu": "50m" } });
    json!({
        "crds": { "managed": true },
        "installation": { "namespace": "kruise-system", "createNamespace": true, "roleListGroups": ["*"] },
        "featureGates": "ImagePullJobGate=true",
        "externalCerts": { "annotations": {} },
        "enableKubeCacheMutationDetector": false,
        "imagePullSecrets": [],
        "manager": {
            "log": { "level": "4" }, "replicas": 2,
            "image": { "repository": "openkruise/kruise-manager", "tag": "v1.9.0" },
            "webhook": { "port": 9876 }, "metrics": { "port": 8080 }, "healthProbe": { "port": 8000 },
            "pprofAddr": "localhost:8090", "resyncPeriod": "0", "loggingFormat": "", "resources": resources,
            "hostNetwork": false, "nodeAffinity": {}, "nodeSelector": {}, "tolerations": [],
        },
        "webhookConfiguration": { "timeoutSeconds": 30, "aksIntegration": false },
        "daemon": {
            "log": { "level": "4" }, "port": 10221, "enablePprof": true, "pprofAddr": "localhost:10222",
            "socketLocation": "/var/run", "socketFile": "", "nodeSelector": {}, "affinity": {}, "resources": resources,
            "extraEnvs": [],
            "credentialProvider": { "enable": false, "configmap": "credential-provider-config", "awsCredentialsDir": "" },
        },
        "serviceAccount": { "annotations": {} },
        "helmHooks": {
            "image": { "repository": "openkruise/kruise-helm-hook", "tag": "v0.1.0" },
            "nodeSelector": {}, "tolerations": [], "affinity": {},
        },
    })
}

/// The chart's own table.
fn table() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder().join("openkruise-values.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn set(values: &Value) -> Vec<String> {
    let values: &Map<String, Value> = values.as_object().unwrap();
    let arguments = values.iter().map(|(key, value)| format!("--set-json={key}={value}"));
    std::iter::once("--kube-version=1.36.0".to_owned())
        .chain(arguments)
        .collect()
}

#[rstest]
#[case("manager.replicas=3", "manager.replicas: use controller.replicas")]
#[case("manager.log.level=5", "manager.log: use controller.log")]
#[case("manager.image.tag=v1", "manager.image.tag: use controller.image.tag")]
#[case("manager.unheardOf=1", "manager: use controller")]
#[case("daemon.socketLocation=/run/k3s", "daemon.socketLocation: use agent.runtime.socket")]
#[case("daemon.extraEnvs[0].name=HTTP_PROXY", "daemon.extraEnvs: use agent.extraEnv")]
#[case("crds.managed=false", "crds.managed: use crds.install")]
#[case(
    "webhookConfiguration.timeoutSeconds=10",
    "webhookConfiguration: no equivalent: Larder has no webhooks"
)]
#[tokio::test]
async fn the_name_to_use_instead_is_given(#[case] value: &str, #[case] sentence: &str) {
    let arguments = ["--kube-version=1.36.0".to_owned(), format!("--set={value}")];
    let error = template(&arguments).await.unwrap_err();
    assert!(error.contains(&format!("\n  {sentence}")), "{error}");
}

#[tokio::test]
async fn somebody_elses_whole_file_is_answered_at_once() {
    let error = template(&set(&openkruise_defaults())).await.unwrap_err();
    for (path, instead) in table() {
        // Named as a whole only where nothing below it has a name of its own.
        let by_part = path == "manager" || path == "helmHooks";
        assert_eq!(
            error.contains(&format!("\n  {path}: {instead}\n")),
            !by_part,
            "{path}\n{error}"
        );
    }
}

/// What is left when everything that was rejected is taken out works.
#[tokio::test]
async fn the_rest_of_their_values_works_here() {
    let mut values = openkruise_defaults();
    let all = values.as_object_mut().unwrap();
    for path in table().keys() {
        match path.split_once('.') {
            Some((parent @ ("daemon" | "crds"), key)) => drop(all[parent].as_object_mut().unwrap().remove(key)),
            Some((root, _)) => drop(all.remove(root)),
            None => drop(all.remove(path)),
        }
    }
    template(&set(&values)).await.unwrap();
}

#[test]
fn the_migration_guide_has_the_same_table() {
    let file = folder().join("../../docs/migrate-from-openkruise.md");
    let guide = std::fs::read_to_string(file).unwrap();
    let documented: BTreeMap<String, String> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .map(|(path, instead)| (path.to_owned(), instead.replace('`', "")))
        .filter(|(_, instead)| instead.starts_with("use ") || instead.starts_with("no equivalent"))
        .collect();
    assert_eq!(documented, table());
}
