//! One suite for every supported container runtime. Each test writes what it saw into a file of its own;
//! `cargo xtask runtimes` makes the table of docs/runtimes.md of them.

#![expect(clippy::unwrap_used, reason = "what tests share fails by panicking, as tests do")]

/// Makes a test for each runtime of these functions.
macro_rules! on_every_runtime {
    ($($case:ident),+ $(,)?) => {
        $(mod $case {
            use larder_testkit::{ContainerdVersion, RuntimeKind};

            #[tokio::test]
            async fn containerd_1_6() {
                super::$case(RuntimeKind::Containerd(ContainerdVersion::V1_6)).await;
            }

            #[tokio::test]
            async fn containerd_1_7() {
                super::$case(RuntimeKind::Containerd(ContainerdVersion::V1_7)).await;
            }

            #[tokio::test]
            async fn containerd_2() {
                super::$case(RuntimeKind::Containerd(ContainerdVersion::V2)).await;
            }

            #[tokio::test]
            async fn cri_o() {
                super::$case(RuntimeKind::CriO).await;
            }

            #[tokio::test]
            async fn docker() {
                super::$case(RuntimeKind::Docker).await;
            }
        })+
    };
}

mod capabilities;
mod failures;
mod node;
mod pulls;
mod result;
mod slow;
