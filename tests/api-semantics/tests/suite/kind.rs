//! The four kinds as an API server names them. Written out by hand: taken from `larder_api`, a wrong name there would
//! go unnoticed here.

/// A kind with its two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ImagePullJob,
    ImageListPullJob,
    NodeImage,
    ImagePrePullJob,
}

/// A kind as one of its versions serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) version: &'static str,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [
        Kind::ImagePullJob,
        Kind::ImageListPullJob,
        Kind::NodeImage,
        Kind::ImagePrePullJob,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::ImagePullJob => "ImagePullJob",
            Kind::ImageListPullJob => "ImageListPullJob",
            Kind::NodeImage => "NodeImage",
            Kind::ImagePrePullJob => "ImagePrePullJob",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Kind::ImagePullJob => "imagepulljobs",
            Kind::ImageListPullJob => "imagelistpulljobs",
            Kind::NodeImage => "nodeimages",
            Kind::ImagePrePullJob => "imageprepulljobs",
        }
    }

    pub(crate) fn group(self) -> &'static str {
        match self {
            Kind::ImagePullJob | Kind::ImageListPullJob | Kind::NodeImage => "apps.kruise.io",
            Kind::ImagePrePullJob => "operations.kubeedge.io",
        }
    }

    pub(crate) fn is_namespaced(self) -> bool {
        matches!(self, Kind::ImagePullJob | Kind::ImageListPullJob)
    }

    /// The stored version, which kubectl asks for if nobody says otherwise.
    pub(crate) fn stored(self) -> Resource {
        let version = match self {
            Kind::ImagePullJob | Kind::ImageListPullJob | Kind::NodeImage => "v1beta1",
            Kind::ImagePrePullJob => "v1alpha2",
        };
        Resource { kind: self, version }
    }

    /// The version that most manifests in the world are written in.
    pub(crate) fn old(self) -> Resource {
        Resource {
            kind: self,
            version: "v1alpha1",
        }
    }

    pub(crate) fn versions(self) -> [Resource; 2] {
        [self.stored(), self.old()]
    }

    /// The kind with this name.
    pub(crate) fn named(name: &str) -> Self {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.unwrap_or_else(|| panic!("{name} is none of the four kinds"))
    }
}

impl Resource {
    pub(crate) fn api_version(self) -> String {
        format!("{}/{}", self.kind.group(), self.version)
    }

    /// As kubectl takes it: `imagepulljobs.v1beta1.apps.kruise.io`.
    pub(crate) fn for_kubectl(self) -> String {
        format!("{}.{}.{}", self.kind.plural(), self.version, self.kind.group())
    }

    /// The path of the collection.
    pub(crate) fn path(self, namespace: &str) -> String {
        let scope = if self.kind.is_namespaced() {
            format!("namespaces/{namespace}/")
        } else {
            String::new()
        };
        format!("/apis/{}/{scope}{}", self.api_version(), self.kind.plural())
    }
}
