//! Refuses a pulled image that is certainly useless on this machine. Runtimes choose from a list of builds, but take a lone
//! one as it is. Wherever a pod might start from it, the pull has succeeded.

use std::path::Path;

use larder_model::{ImageRef, Reason};
use larder_registry::Platform;
use larder_runtime::ImageRuntime;
use tokio::fs;

use crate::pull::Failure;

/// Fails if no container can start from the image. A runtime that does not tell what it is built for leaves that open.
pub(crate) async fn require_usable(
    runtime: &dyn ImageRuntime,
    image: &ImageRef,
    binfmt_dir: &Path,
) -> Result<(), Failure> {
    match runtime.platform(image).await {
        Ok(Some(built_for)) => judge(&built_for, &Platform::of_this_machine(), binfmt_dir).await,
        Ok(None) | Err(_) => Ok(()),
    }
}

async fn judge(built_for: &Platform, machine: &Platform, binfmt_dir: &Path) -> Result<(), Failure> {
    if built_for.runs_on(machine) || emulates(binfmt_dir).await {
        return Ok(());
    }
    let words = format!("the image is built for {built_for}, and this node is {machine}");
    Err(Failure::new(Reason::NoPlatform, words))
}

/// Whether the kernel hands some programs to others. Which ones does not matter: an emulator may have any name, and an
/// emulated agent takes the emulated machine for its own.
async fn emulates(binfmt_dir: &Path) -> bool {
    let Ok(mut files) = fs::read_dir(binfmt_dir).await else {
        return false;
    };
    while let Ok(Some(file)) = files.next_entry().await {
        let name = file.file_name();
        if name == "register" || name == "status" {
            continue;
        }
        // A handler that cannot be read may be at work.
        let handler = fs::read_to_string(file.path()).await;
        if !handler.is_ok_and(|handler| handler.starts_with("disabled")) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const QEMU: &str = "interpreter /usr/bin/qemu-aarch64-static\nflags: OCF\noffset 0\n";

    /// What is in the folder, and what becomes of an arm64 image on an amd64 node.
    #[rstest]
    #[case::empty(&[], Some(Reason::NoPlatform))]
    #[case::no_handler(&[("register", ""), ("status", "enabled\n")], Some(Reason::NoPlatform))]
    #[case::a_handler(&[("status", "enabled\n"), ("qemu-aarch64", "enabled\n")], None)]
    #[case::a_handler_that_is_off(&[("qemu-aarch64", "disabled\n")], Some(Reason::NoPlatform))]
    #[case::one_of_two_is_off(&[("jar", "disabled\n"), ("qemu-aarch64", "enabled\n")], None)]
    #[tokio::test]
    async fn a_foreign_image_is_useless_where_nothing_is_emulated(
        #[case] files: &[(&str, &str)],
        #[case] want: Option<Reason>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (name, state) in files {
            std::fs::write(folder.path().join(name), format!("{state}{QEMU}")).unwrap();
        }
        let (image, machine) = (
            Platform::new("linux", "arm64", None),
            Platform::new("linux", "amd64", None),
        );
        let failure = judge(&image, &machine, folder.path()).await.err();
        assert_eq!(failure.map(|failure| failure.reason), want);
        assert!(judge(&machine, &machine, folder.path()).await.is_ok());
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_emulates_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!emulates(&folder.path().join("nowhere")).await);
    }

    #[tokio::test]
    async fn a_handler_that_cannot_be_read_counts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("qemu-arm")).unwrap();
        assert!(emulates(folder.path()).await);
    }
}
