//! containerd's filter language, as far as we write it. Pure text.

use larder_model::ImageRef;

/// Label that the fetcher of manifests sets on a manifest it is about to fetch the children of.
const CONFIG_CHILD: &str = "containerd.io/gc.ref.content.config";

/// Label, with the host name behind it, that says from which repositories a blob came.
const SOURCE: &str = "containerd.io/distribution.source";

/// Things that carry this label with this value.
pub(super) fn label_is(key: &str, value: &str) -> String {
    format!("{}=={}", label(key), quoted(value))
}

/// Things that carry this label.
pub(super) fn label(key: &str) -> String {
    format!("labels.{}", quoted(key))
}

/// The label that says that a blob came from the repository of this image.
pub(super) fn source(image: &ImageRef) -> (String, String) {
    let key = format!("{SOURCE}.{}", host_name(image.registry()));
    (key, image.repository().to_owned())
}

/// Manifests (not indexes) that came from the repository of this image.
pub(super) fn manifests_of(image: &ImageRef) -> String {
    let source = format!("{SOURCE}.{}", host_name(image.registry()));
    // The label's value is a list with commas. Repository names hold no character but the dot that means something in
    // a regular expression.
    let repository = image.repository().replace('.', "[.]");
    let pattern = format!("^(.*,)?{repository}(,.*)?$");
    format!("{}~={},{}", label(&source), quoted(&pattern), label(CONFIG_CHILD))
}

/// Events of one topic about images of CRI.
pub(super) fn topic(topic: &str) -> String {
    format!("topic=={},namespace==\"k8s.io\"", quoted(topic))
}

/// A registry's host name without its port, which is how containerd names the source.
fn host_name(registry: &str) -> &str {
    if let Some(bracketed) = registry.strip_prefix('[') {
        return bracketed.split(']').next().unwrap_or(bracketed);
    }
    registry.split(':').next().unwrap_or(registry)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::hub("nginx:1", "docker.io", "library/nginx")]
    #[case::port("127.0.0.1:5000/team/app:1", "127.0.0.1", "team/app")]
    #[case::dots("r.example.com/a.b/c:1", "r.example.com", "a[.]b/c")]
    fn manifests_are_found_by_repository(#[case] image: &str, #[case] host: &str, #[case] repository: &str) {
        let expected = format!(
            r#"labels."containerd.io/distribution.source.{host}"~="^(.*,)?{repository}(,.*)?$",labels."containerd.io/gc.ref.content.config""#
        );
        assert_eq!(manifests_of(&ImageRef::parse(image).unwrap()), expected);
    }

    #[rstest]
    #[case::ipv6("[::1]:5000", "::1")]
    #[case::plain("docker.io", "docker.io")]
    fn ports_and_brackets_are_no_part_of_the_name(#[case] registry: &str, #[case] expected: &str) {
        assert_eq!(host_name(registry), expected);
    }

    #[test]
    fn values_cannot_break_out_of_their_quotes() {
        assert_eq!(label_is("k", r#"a"\b"#), r#"labels."k"=="a\"\\b""#);
    }
}
