//! The files in `deploy/rbac`, applied as a person does it: all of them, below Kubernetes 1.30 without the policy.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use larder_testkit::{ControlPlane, Kubectl, KubernetesVersion, Options, kubectl};

use crate::cluster::POLICY_FILE;

#[tokio::test]
async fn the_folder_can_be_applied_at_once_and_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
    let options = Options {
        crds: larder_api::crds(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let has_policy = KubernetesVersion::tested().enforces_node_policy();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|file| has_policy || !file.ends_with(POLICY_FILE));
    files.sort();
    let files = files.iter().flat_map(|file| [OsStr::new("-f"), file.as_os_str()]);
    let arguments: Vec<&OsStr> = [OsStr::new("apply")].into_iter().chain(files).collect();
    for expected in ["created", "unchanged"] {
        let output = kubectl(Kubectl::Current, plane.kubeconfig(), &arguments).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            said.lines().count() > 10 && said.lines().all(|line| line.ends_with(expected)),
            "{said}"
        );
    }
}
