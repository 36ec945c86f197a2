//! Which back end a socket gets.

use std::{path::Path, sync::Arc};

use crate::{
    Fetching, ImageRuntime, LeftToRuntime, RuntimeEndpoint, RuntimeError, containerd::ContainerdRuntime,
    cri::CriRuntime,
};

/// What containerd calls itself, in K3s, RKE2, k0s and MicroK8s too.
const CONTAINERD: &str = "containerd";

/// Asks the runtime who it is and returns the back end that gets most out of it.
///
/// Fails while nobody answers: ask again later. Once it has succeeded, the runtime may go away and come back.
/// `host_root` is where this process sees the node's root filesystem.
pub async fn connect(endpoint: &RuntimeEndpoint, host_root: &Path) -> Result<Arc<dyn ImageRuntime>, RuntimeError> {
    connect_with(endpoint, host_root, None).await
}

/// The same, with a fetcher that brings layers into the runtime's store, where the runtime has one that we can use.
pub async fn connect_with(
    endpoint: &RuntimeEndpoint,
    host_root: &Path,
    fetching: Option<Fetching>,
) -> Result<Arc<dyn ImageRuntime>, RuntimeError> {
    let cri = CriRuntime::new(endpoint, host_root)?;
    let version = cri.version().await?;
    if version.name == CONTAINERD {
        let containerd = ContainerdRuntime::new(endpoint, host_root)?;
        return Ok(match fetching {
            Some(fetching) => Arc::new(containerd.fetching(fetching)),
            None => Arc::new(containerd),
        });
    }
    if fetching.is_none() {
        return Ok(Arc::new(cri));
    }
    let left = LeftToRuntime::OtherRuntime;
    tracing::info!(runtime = %version, reason = left.as_str(), "{left}");
    Ok(Arc::new(cri.leaving(left)))
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
