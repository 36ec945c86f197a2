//! The files in `deploy/rbac`, applied as a person does it.

use std::path::Path;

use larder_testkit::{ControlPlane, Kubectl, Options, kubectl};

#[tokio::test]
async fn the_folder_can_be_applied_at_once_and_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
    let options = Options {
        crds: larder_api::crds(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    for expected in ["created", "unchanged"] {
        let arguments = ["apply".as_ref(), "-f".as_ref(), folder.as_os_str()];
        let output = kubectl(Kubectl::Current, plane.kubeconfig(), arguments).await.unwrap();
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
