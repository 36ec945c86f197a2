//! kill -9 at random moments of a write load: what was answered is there afterwards.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

const KILLS: usize = 50;
const WRITERS: usize = 8;

/// The server as a program of its own, from the examples of this package.
fn program() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().unwrap().parent().unwrap().join("examples/serve");
    assert!(
        path.is_file(),
        "{} is missing; build it with `cargo build --examples`",
        path.display()
    );
    path
}

async fn start(folder: &Path) -> (Child, Client) {
    let kubeconfig = folder.join("kubeconfig");
    let mut child = Command::new(program())
        .args([
            folder.join("objects.redb").as_os_str(),
            "127.0.0.1:0".as_ref(),
            kubeconfig.as_os_str(),
        ])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(Duration::from_mins(1), lines.next_line())
        .await
        .unwrap()
        .unwrap();
    assert!(line.expect("the server starts").starts_with("listening on "));
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    (child, Client::try_from(config.unwrap()).unwrap())
}

/// The last value that was answered for each name, and the one that was asked for and not answered.
#[derive(Default)]
struct Known {
    answered: BTreeMap<String, u64>,
    asked: BTreeMap<String, u64>,
}

/// Creates objects and raises their numbers until the server is gone.
async fn write(client: Client, writer: usize, known: Arc<Mutex<Known>>) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for round in 0.. {
        let name = format!("w{writer}-{}", round % 20);
        let next = known.lock().unwrap().asked.get(&name).map_or(0, |last| last + 1);
        known.lock().unwrap().asked.insert(name.clone(), next);
        let data = json!({"data": {"n": next.to_string()}});
        let result = match maps.patch(&name, &PatchParams::default(), &Patch::Merge(&data)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        ..ObjectMeta::default()
                    },
                    data: Some([("n".to_owned(), next.to_string())].into()),
                    ..ConfigMap::default()
                };
                maps.create(&PostParams::default(), &map).await
            }
            other => other,
        };
        match result {
            Ok(_) => drop(known.lock().unwrap().answered.insert(name, next)),
            Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_nothing_that_was_answered() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let known = Arc::new(Mutex::new(Known::default()));
    let mut answered_at_last = 0;
    for kill in 0..KILLS {
        let (mut child, client) = start(folder.path()).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let found: BTreeMap<String, u64> = maps
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .map(|map| (map.name_any(), map.data.as_ref().unwrap()["n"].parse().unwrap()))
            .collect();
        check(&found, &known.lock().unwrap(), kill, seed);
        {
            // What was asked for and not answered may have happened or not; now it is known.
            let mut known = known.lock().unwrap();
            known.asked = found.clone();
            known.answered = found;
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write(client.clone(), writer, Arc::clone(&known))))
            .collect();
        tokio::time::sleep(Duration::from_millis(random.random_range(5..150))).await;
        child.start_kill().unwrap();
        child.wait().await.unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        answered_at_last = known.lock().unwrap().answered.values().sum();
    }
    println!("{answered_at_last} raises were answered and survived {KILLS} kills");
    assert!(0 < answered_at_last, "nothing was written, so nothing was tested");
}

fn check(found: &BTreeMap<String, u64>, known: &Known, kill: usize, seed: u64) {
    for (name, answered) in &known.answered {
        let is = found.get(name);
        let asked = known.asked[name];
        assert!(
            is.is_some_and(|is| (*answered..=asked).contains(is)),
            "after kill {kill} (seed {seed}) {name} is {is:?}; {answered} was answered and {asked} asked for"
        );
    }
    for (name, is) in found {
        let asked = known.asked.get(name);
        assert!(
            asked.is_some_and(|asked| is <= asked),
            "after kill {kill} (seed {seed}) {name} is {is}, which nobody wrote"
        );
    }
}
