//! The gRPC words that container runtimes speak: the image half of CRI v1, and the few containerd services that show
//! what CRI hides (bytes of a running pull, references with labels, events).
//!
//! Everything under `generated` comes from `proto/` (see the README) and is checked in. Clients and servers are both
//! here: the servers play a runtime in tests. This crate holds no logic and opens no socket.

/// The Container Runtime Interface.
pub mod runtime {
    /// `runtime.v1`: the only version that supported runtimes still offer.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        unreachable_pub,
        reason = "generated code is not written for readers"
    )]
    pub mod v1 {
        include!("generated/runtime.v1.rs");
    }
}

/// containerd's own services, on the same socket as its CRI.
pub mod containerd {
    /// Types that the services share.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        unreachable_pub,
        reason = "generated code is not written for readers"
    )]
    pub mod types {
        include!("generated/containerd.types.rs");
    }

    /// One module per service; generated code refers to its neighbours by this path.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        unreachable_pub,
        reason = "generated code is not written for readers"
    )]
    pub mod services {
        pub mod content {
            pub mod v1 {
                include!("generated/containerd.services.content.v1.rs");
            }
        }
        pub mod events {
            pub mod v1 {
                include!("generated/containerd.services.events.v1.rs");
            }
        }
        pub mod images {
            pub mod v1 {
                include!("generated/containerd.services.images.v1.rs");
            }
        }
        pub mod leases {
            pub mod v1 {
                include!("generated/containerd.services.leases.v1.rs");
            }
        }
        pub mod snapshots {
            pub mod v1 {
                include!("generated/containerd.services.snapshots.v1.rs");
            }
        }
        pub mod version {
            pub mod v1 {
                include!("generated/containerd.services.version.v1.rs");
            }
        }
    }
}

/// Shows who and where, never the secret.
impl std::fmt::Debug for runtime::v1::AuthConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::runtime::v1::{AuthConfig, ImageSpec, PodSandboxConfig, PullImageRequest};

    #[test]
    fn debug_of_a_request_shows_no_secret() {
        let request = PullImageRequest {
            auth: Some(AuthConfig {
                username: "robot".to_owned(),
                password: "hunter2".to_owned(),
                auth: "aHVudGVyMg==".to_owned(),
                identity_token: "idtoken".to_owned(),
                registry_token: "regtoken".to_owned(),
                ..AuthConfig::default()
            }),
            ..PullImageRequest::default()
        };
        let text = format!("{request:?}");
        assert!(text.contains("robot"));
        for secret in ["hunter2", "aHVudGVyMg==", "idtoken", "regtoken"] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    /// The bytes a kubelet would send, worked out by hand from the field numbers of CRI v1: a wrong number in the
    /// `.proto` text would still compile, and the runtime would silently ignore the field.
    #[test]
    fn numbers_on_the_wire_are_those_of_cri() {
        let request = PullImageRequest {
            image: Some(ImageSpec {
                image: "a".to_owned(),
                runtime_handler: "h".to_owned(),
                ..ImageSpec::default()
            }),
            auth: Some(AuthConfig {
                username: "u".to_owned(),
                password: "p".to_owned(),
                ..AuthConfig::default()
            }),
            sandbox_config: Some(PodSandboxConfig {
                labels: [("l".to_owned(), "1".to_owned())].into(),
                annotations: [("n".to_owned(), "2".to_owned())].into(),
                ..PodSandboxConfig::default()
            }),
        };
        let expected = [
            &[0x0a, 7, 0x0a, 1, b'a', 0x9a, 0x01, 1, b'h'][..], // image: 1 image, 19 runtime_handler
            &[0x12, 6, 0x0a, 1, b'u', 0x12, 1, b'p'],           // auth: 1 username, 2 password
            &[0x1a, 16],                                        // sandbox_config
            &[0x32, 6, 0x0a, 1, b'l', 0x12, 1, b'1'],           // 6 labels
            &[0x3a, 6, 0x0a, 1, b'n', 0x12, 1, b'2'],           // 7 annotations
        ]
        .concat();
        assert_eq!(request.encode_to_vec(), expected);
    }
}
