//! What people type, with an old kubectl and with a current one.

use std::{path::Path, process::Output, time::Duration};

use larder_localplane::{Localplane, Tokens};
use larder_testkit::{Kubectl, kubectl};
use rstest::rstest;
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;

struct Shell {
    plane: Localplane,
    folder: TempDir,
    which: Kubectl,
}

impl Shell {
    async fn new(which: Kubectl) -> Self {
        let plane = crate::http::plane().await;
        let folder = tempfile::tempdir().unwrap();
        let token = SecretString::from("token");
        let address = "127.0.0.1:0".parse().unwrap();
        let listening = plane.listen(address, Tokens::admin(token.clone())).await.unwrap();
        std::fs::write(
            folder.path().join("kubeconfig"),
            listening.kubeconfig(&token).expose_secret(),
        )
        .unwrap();
        Self { plane, folder, which }
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_string_lossy().into_owned()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        kubectl(self.which, &self.path().join("kubeconfig"), arguments)
            .await
            .unwrap()
    }

    async fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Where `tests/servers/setup` puts kubectl. Needed by name only here, where kubectl gets an environment of its own.
#[expect(clippy::disallowed_methods, reason = "the same rule as in tests/servers/setup")]
fn program(which: Kubectl) -> std::path::PathBuf {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.is_empty())
            .map(std::path::PathBuf::from)
    };
    let cache =
        || variable("XDG_CACHE_HOME").unwrap_or_else(|| std::env::home_dir().unwrap_or_default().join(".cache"));
    let folder = match which {
        Kubectl::Debian => "kubernetes-client-debian",
        Kubectl::Current => "kubernetes-1.36.3",
    };
    let root = variable("LARDER_CACHE").unwrap_or_else(|| cache().join("larder"));
    root.join("servers").join(folder).join("kubectl")
}

const JOB: &str = r"
apiVersion: apps.kruise.io/v1beta1
kind: ImagePullJob
metadata: {name: job}
spec: {image: nginx, parallelism: 2}
";

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_lives_through_every_command(#[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl) {
    let shell = Shell::new(which).await;
    let file = shell.file("job.yaml", JOB);
    assert!(shell.text(&["apply", "-f", &file]).await.contains("created"));
    assert!(shell.text(&["apply", "-f", &file]).await.contains("unchanged"));
    assert!(shell.text(&["get", "imagepulljobs"]).await.starts_with("NAME"));
    assert!(
        shell
            .text(&["get", "imagepulljob", "job", "-o", "yaml"])
            .await
            .contains("parallelism: 2")
    );
    assert!(shell.text(&["describe", "imagepulljob", "job"]).await.contains("nginx"));
    shell.text(&["label", "imagepulljob", "job", "a=b"]).await;
    shell
        .text(&[
            "patch",
            "imagepulljob",
            "job",
            "--type=json",
            "-p",
            r#"[{"op":"replace","path":"/spec/parallelism","value":3}]"#,
        ])
        .await;
    assert_eq!(
        shell
            .text(&["get", "imagepulljob", "job", "-o", "jsonpath={.spec.parallelism}"])
            .await,
        "3"
    );
    assert!(
        shell
            .text(&["get", "imagepulljobs", "-l", "a=b", "-A", "-o", "name"])
            .await
            .contains("/job")
    );
    let server_side = shell.run(&["apply", "--server-side", "-f", &file]).await;
    let told = String::from_utf8_lossy(&server_side.stderr).into_owned();
    assert!(
        !server_side.status.success() && told.contains("use client-side apply"),
        "{told}"
    );
    assert!(shell.text(&["delete", "imagepulljob", "job"]).await.contains("deleted"));
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_editor_changes_an_object(#[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl) {
    let shell = Shell::new(which).await;
    let file = shell.file("job.yaml", JOB);
    shell.text(&["apply", "-f", &file]).await;
    shell.text(&["create", "configmap", "c", "--from-literal=a=b"]).await;
    let editor = shell.file(
        "editor",
        "#!/bin/sh\nsed -i -e 's/nginx/busybox/' -e 's/a: b/a: changed/' \"$1\"\n",
    );
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (kind, name) in [("imagepulljob", "job"), ("configmap", "c")] {
        let mut command = tokio::process::Command::new(program(which));
        command.env("KUBE_EDITOR", &editor).env("HOME", shell.path());
        command
            .arg("--kubeconfig")
            .arg(shell.path().join("kubeconfig"))
            .args(["edit", kind, name]);
        let run = tokio::time::timeout(Duration::from_mins(1), command.output());
        assert!(run.await.unwrap().unwrap().status.success());
    }
    assert_eq!(
        shell
            .text(&["get", "imagepulljob", "job", "-o", "jsonpath={.spec.image}"])
            .await,
        "busybox"
    );
    assert_eq!(
        shell.text(&["get", "configmap", "c", "-o", "jsonpath={.data.a}"]).await,
        "changed"
    );
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn built_in_kinds_are_made_shown_and_deleted(#[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl) {
    let shell = Shell::new(which).await;
    shell.text(&["create", "namespace", "space"]).await;
    shell
        .text(&["-n", "space", "create", "secret", "generic", "s", "--from-literal=a=b"])
        .await;
    let docker = ["--docker-server=r", "--docker-username=u", "--docker-password=p"];
    let create = ["-n", "space", "create", "secret", "docker-registry", "pull"];
    shell.text(&[create.as_slice(), &docker].concat()).await;
    shell
        .text(&["-n", "space", "create", "configmap", "c", "--from-literal=a=b"])
        .await;
    shell.text(&["-n", "space", "create", "serviceaccount", "sa"]).await;
    assert_eq!(
        shell
            .text(&["-n", "space", "get", "secret", "s", "-o", "jsonpath={.data.a}"])
            .await,
        "Yg=="
    );
    assert!(
        shell
            .text(&["-n", "space", "get", "secrets"])
            .await
            .contains("kubernetes.io/dockerconfigjson")
    );
    let node = shell.file("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n");
    shell.text(&["apply", "-f", &node]).await;
    shell.text(&["label", "node", "n1", "zone=a"]).await;
    shell.text(&["taint", "node", "n1", "a=b:NoSchedule"]).await;
    assert!(shell.text(&["describe", "node", "n1"]).await.contains("a=b:NoSchedule"));
    assert!(shell.text(&["get", "nodes", "-L", "zone"]).await.contains("ZONE"));
    assert!(shell.text(&["get", "crd"]).await.contains("nodeimages.apps.kruise.io"));
    assert!(
        shell
            .text(&["explain", "pod.spec.containers"])
            .await
            .contains("imagePullPolicy")
    );
    assert!(shell.text(&["api-resources"]).await.contains("coordination.k8s.io/v1"));
    assert!(shell.text(&["version"]).await.contains("larder"));
    shell.text(&["delete", "namespace", "space", "--timeout=30s"]).await;
    assert!(!shell.run(&["get", "namespace", "space"]).await.status.success());
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_prints_what_happens(#[values(Kubectl::Debian, Kubectl::Current)] which: Kubectl) {
    let shell = Shell::new(which).await;
    let file = shell.file("job.yaml", JOB);
    shell.text(&["apply", "-f", &file]).await;
    let requests = crate::http::Requests::to(&shell.plane);
    let watch = shell.text(&[
        "get",
        "imagepulljobs",
        "-w",
        "-o",
        "jsonpath={.spec.parallelism},",
        "--request-timeout=5s",
    ]);
    // Nobody can see when kubectl has begun to watch, so changes go on until it ends.
    let changes = async {
        for parallelism in 10.. {
            let patch = serde_json::json!({"spec": {"parallelism": parallelism}});
            requests.merge(&format!("{}/job", crate::http::JOBS), &patch).await.ok();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let printed = tokio::select! {
        printed = watch => printed,
        () = changes => String::new(),
    };
    let values: Vec<i64> = printed
        .split_terminator(',')
        .map(|value| value.parse().unwrap())
        .collect();
    assert!(2 < values.len(), "{printed}");
    assert!(values[1..].windows(2).all(|pair| pair[0] + 1 == pair[1]), "{printed}");
}
