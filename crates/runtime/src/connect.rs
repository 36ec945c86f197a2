//! Which back end a socket gets.

use std::{path::Path, sync::Arc};

use crate::{ImageRuntime, RuntimeEndpoint, RuntimeError, containerd::ContainerdRuntime, cri::CriRuntime};

/// What containerd calls itself, in K3s, RKE2, k0s and MicroK8s too.
const CONTAINERD: &str = "containerd";

/// Asks the runtime who it is and returns the back end that gets most out of it.
///
/// Fails while nobody answers: ask again later. Once it has succeeded, the runtime may go away and come back.
/// `host_root` is where this process sees the node's root filesystem.
pub async fn connect(endpoint: &RuntimeEndpoint, host_root: &Path) -> Result<Arc<dyn ImageRuntime>, RuntimeError> {
    let cri = CriRuntime::new(endpoint, host_root)?;
    let version = cri.version().await?;
    if version.name == CONTAINERD {
        Ok(Arc::new(ContainerdRuntime::new(endpoint, host_root)?))
    } else {
        Ok(Arc::new(cri))
    }
}

#[cfg(test)]
mod tests {
    use larder_model::{ImageRef, Reason};
    use rstest::rstest;

    use super::*;
    use crate::test_server::{Behaviour, TestServer};

    #[rstest]
    #[case::containerd("containerd", true)]
    #[case::crio("cri-o", false)]
    #[case::docker("docker", false)]
    #[tokio::test]
    async fn containerd_gets_its_own_back_end(#[case] name: &'static str, #[case] shows_progress: bool) {
        let folder = tempfile::tempdir().unwrap();
        let behaviour = Behaviour {
            name,
            ..Behaviour::default()
        };
        let server = TestServer::start(&folder.path().join("cri.sock"), behaviour);
        let runtime = connect(&server.endpoint(), Path::new("/")).await.unwrap();
        assert_eq!(runtime.capabilities().await.unwrap().progress.is_yes(), shows_progress);
    }

    #[tokio::test]
    async fn nobody_there_is_down_and_not_fatal() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = RuntimeEndpoint::at(folder.path().join("cri.sock"));
        let Err(error) = connect(&endpoint, Path::new("/")).await else {
            panic!("nobody listens there");
        };
        assert_eq!(error.reason(), Reason::RuntimeDown);
    }

    #[tokio::test]
    async fn what_cri_alone_cannot_do_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::start(&folder.path().join("cri.sock"), Behaviour::default());
        let runtime = connect(&server.endpoint(), Path::new("/")).await.unwrap();
        let image = ImageRef::parse("nginx:1").unwrap();
        let error = runtime.pin(&image).await.unwrap_err();
        assert!(error.text().contains("CRI only"), "{}", error.text());
        // Nothing of ours can be there, so taking it back is done already.
        runtime.unpin(&image).await.unwrap();
    }
}
