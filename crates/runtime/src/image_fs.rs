//! Size and free room of the filesystem that holds the images, from the kernel: CRI tells only what images use.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use larder_model::ByteSize;

use crate::{ImageFs, RuntimeError};

/// How long the kernel may take. A network filesystem whose server is gone blocks for ever.
const LIMIT: Duration = Duration::from_secs(10);

/// Looks at the filesystem under `path`, which we find below `host_root`: in a container the node's root is mounted
/// somewhere else.
pub(crate) async fn measure(
    host_root: &Path,
    path: PathBuf,
    used_by_images: Option<ByteSize>,
) -> Result<ImageFs, RuntimeError> {
    let here = host_root.join(path.strip_prefix("/").unwrap_or(&path));
    let failed = |source: io::Error| RuntimeError::Io {
        doing: "read the size of the image filesystem".to_owned(),
        path: here.clone(),
        source,
    };
    let asked = here.clone();
    let question = tokio::task::spawn_blocking(move || rustix::fs::statvfs(&asked));
    let answer = match tokio::time::timeout(LIMIT, question).await {
        Ok(Ok(answer)) => answer.map_err(|errno| failed(errno.into()))?,
        Ok(Err(join)) => return Err(failed(io::Error::other(join))),
        Err(_) => return Err(failed(io::Error::from(io::ErrorKind::TimedOut))),
    };
    Ok(ImageFs {
        path,
        capacity: ByteSize(answer.f_blocks.saturating_mul(answer.f_frsize)),
        used: ByteSize(
            answer
                .f_blocks
                .saturating_sub(answer.f_bfree)
                .saturating_mul(answer.f_frsize),
        ),
        free: ByteSize(answer.f_bavail.saturating_mul(answer.f_frsize)),
        used_by_images,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finds_the_path_below_the_host_root() {
        let host = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(host.path().join("var/lib/images")).unwrap();
        let fs = measure(host.path(), PathBuf::from("/var/lib/images"), None)
            .await
            .unwrap();
        assert_eq!(fs.path, Path::new("/var/lib/images"));
        assert!(ByteSize(0) < fs.capacity && fs.used + fs.free <= fs.capacity);
        assert!(ByteSize(0) < fs.used);
    }

    #[tokio::test]
    async fn a_path_that_is_not_mounted_is_named() {
        let host = tempfile::tempdir().unwrap();
        let error = measure(host.path(), PathBuf::from("/var/lib/images"), None)
            .await
            .unwrap_err();
        let place = host.path().join("var/lib/images");
        assert!(error.text().contains(place.to_str().unwrap()), "{}", error.text());
    }
}
