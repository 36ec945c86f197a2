use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::digest::Algorithm;

const F2: &str = "sha256:f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2";
const HEX64: &str = "f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2";

#[rstest]
#[case::bare("ubuntu", "ubuntu", "latest")]
#[case::spelt_out("docker.io/library/ubuntu:latest", "ubuntu", "latest")]
#[case::own_registry("myregistry:5000/my/image:v1", "myregistry:5000/my/image", "v1")]
#[case::digest("myregistry:5000/my/image@{F2}", "myregistry:5000/my/image", "{F2}")]
#[case::tag_and_digest("ubuntu:20.04@{F2}", "ubuntu", "{F2}")]
#[case::owner("foo/bar", "foo/bar", "latest")]
#[case::owner_spelt_out("docker.io/foo/bar:1", "foo/bar", "1")]
#[case::hub_without_library("docker.io/nginx", "nginx", "latest")]
#[case::old_hub_name("index.docker.io/library/nginx:1", "nginx", "1")]
#[case::old_hub_name_without_library("index.docker.io/nginx", "nginx", "latest")]
#[case::hub_with_port_is_another_registry("docker.io:443/nginx", "docker.io:443/nginx", "latest")]
#[case::nested_library_keeps_its_folder("library/a/b", "library/a/b", "latest")]
#[case::localhost("localhost/x", "localhost/x", "latest")]
#[case::localhost_with_port("localhost:5000/x:1", "localhost:5000/x", "1")]
#[case::localhost_alone_is_an_image("localhost", "localhost", "latest")]
#[case::localhost_with_tag_is_an_image("localhost:5000", "localhost", "5000")]
#[case::dotted_alone_is_an_image("example.com", "example.com", "latest")]
#[case::ipv4("10.0.0.1/x", "10.0.0.1/x", "latest")]
#[case::ipv6_with_port("[2001:db8::1]:5000/x", "[2001:db8::1]:5000/x", "latest")]
#[case::ipv6_without_port("[::1]/x/y:z", "[::1]/x/y", "z")]
#[case::ipv6_with_digest("[fd00::a]:5000/x@{F2}", "[fd00::a]:5000/x", "{F2}")]
#[case::capital_letters_in_host("Registry.Example.COM/x", "Registry.Example.COM/x", "latest")]
#[case::deep_path("gcr.io/a/b/c/d:e", "gcr.io/a/b/c/d", "e")]
#[case::separators("docker.io/f/a.b_c__d---e:g", "f/a.b_c__d---e", "g")]
#[case::hub_path_that_looks_like_a_host("docker.io/a.b/c:1", "docker.io/a.b/c", "1")]
#[case::hub_path_called_localhost("docker.io/localhost/c:1", "docker.io/localhost/c", "1")]
#[case::hub_image_called_sha256("docker.io/library/sha256:{HEX64}", "docker.io/library/sha256", "{HEX64}")]
#[case::hub_image_called_like_an_id("docker.io/library/{HEX64}", "{HEX64}", "latest")]
#[case::tag_of_every_kind("x:_A.b-C_9", "x", "_A.b-C_9")]
fn normalises(#[case] text: &str, #[case] name: &str, #[case] tag: &str) {
    let image = ImageRef::parse(&filled(text)).unwrap();
    assert_eq!((image.name(), image.tag_text()), (&*filled(name), filled(tag)));
    if let Err(difference) = reads_back(&image) {
        panic!("{difference}");
    }
}

#[rstest]
#[case::hub("ubuntu", "docker.io", "library/ubuntu", "docker.io/library/ubuntu:latest")]
#[case::hub_owner("foo/bar:1", "docker.io", "foo/bar", "docker.io/foo/bar:1")]
#[case::port("h:5000/x/y:1", "h:5000", "x/y", "h:5000/x/y:1")]
#[case::ipv6("[::1]:5000/x:1", "[::1]:5000", "x", "[::1]:5000/x:1")]
#[case::digest("nginx:1@{F2}", "docker.io", "library/nginx", "docker.io/library/nginx@{F2}")]
fn knows_its_parts(#[case] text: &str, #[case] registry: &str, #[case] repository: &str, #[case] canonical: &str) {
    let image = ImageRef::parse(&filled(text)).unwrap();
    assert_eq!(image.registry(), registry);
    assert_eq!(image.repository(), repository);
    assert_eq!(image.canonical(), filled(canonical));
}

#[test]
fn a_digest_stands_behind_an_at_sign_and_a_tag_behind_a_colon() {
    let by_digest = ImageRef::parse(&format!("nginx:1.27@{F2}")).unwrap();
    assert_eq!(by_digest.to_string(), format!("nginx@{F2}"));
    assert_eq!(
        by_digest.reference().digest().map(Digest::algorithm),
        Some(Algorithm::Sha256)
    );
    let by_tag = ImageRef::parse("nginx").unwrap();
    assert_eq!(by_tag.to_string(), "nginx:latest");
    assert_eq!(by_tag.reference().digest(), None);
    assert_eq!(format!("[{by_tag:>14}]"), "[  nginx:latest]");
}

#[test]
fn spellings_of_one_image_are_equal() {
    let spellings = [
        "nginx",
        "nginx:latest",
        "library/nginx",
        "docker.io/nginx",
        "index.docker.io/library/nginx:latest",
    ];
    let images: std::collections::BTreeSet<_> = spellings.map(|text| ImageRef::parse(text).unwrap()).into();
    assert_eq!(images.len(), 1);
}

#[rstest]
#[case::empty("", ImageRefError::Empty)]
#[case::image_id("{HEX64}", ImageRefError::ImageId(HEX64.into()))]
#[case::image_id_with_algorithm("{F2}", ImageRefError::ImageId(F2.into()))]
#[case::capital_letters_and_underscores("INVALID_IMAGE_REF", ImageRefError::Uppercase("INVALID_IMAGE_REF".into()))]
#[case::capital_owner("UPPERCASE/image", ImageRefError::Uppercase("UPPERCASE/image".into()))]
#[case::capital_path("host:5000/Image", ImageRefError::Uppercase("Image".into()))]
#[case::url("https://host/x", ImageRefError::Scheme("https://host/x".into()))]
#[case::docker_scheme("docker://nginx", ImageRefError::Scheme("docker://nginx".into()))]
#[case::slash_first("/x", ImageRefError::Path(String::new()))]
#[case::slash_last("x/", ImageRefError::Path(String::new()))]
#[case::slash_twice("a//b", ImageRefError::Path(String::new()))]
#[case::host_alone("host.io/", ImageRefError::Path(String::new()))]
#[case::space("a b", ImageRefError::Path("a b".into()))]
#[case::line_feed("nginx\n", ImageRefError::Path("nginx\\n".into()))]
#[case::not_ascii("nginx/é", ImageRefError::Path("é".into()))]
#[case::separator_first("_a", ImageRefError::Path("_a".into()))]
#[case::separator_last("a-", ImageRefError::Path("a-".into()))]
#[case::two_dots("x/a..b", ImageRefError::Path("a..b".into()))]
#[case::three_underscores("a___b", ImageRefError::Path("a___b".into()))]
#[case::mixed_separators("a._b", ImageRefError::Path("a._b".into()))]
#[case::tag_alone(":v1", ImageRefError::Path(String::new()))]
#[case::digest_alone("@{F2}", ImageRefError::Path(String::new()))]
#[case::empty_tag("x:", ImageRefError::Tag(String::new()))]
#[case::tag_with_dot_first("x:.a", ImageRefError::Tag(".a".into()))]
#[case::tag_with_hyphen_first("x:-a", ImageRefError::Tag("-a".into()))]
#[case::two_tags("x:a:b", ImageRefError::Tag("a:b".into()))]
#[case::slash_in_tag("h:5000/x:a/b", ImageRefError::Tag("a/b".into()))]
#[case::host_label_empty("a..b/x", ImageRefError::Host("a..b".into()))]
#[case::host_label_ends_in_hyphen("a-.b/x", ImageRefError::Host("a-.b".into()))]
#[case::host_with_underscore("a_b.c/x", ImageRefError::Host("a_b.c".into()))]
#[case::no_host_before_port(":5000/x", ImageRefError::Host(":5000".into()))]
#[case::ipv6_not_closed("[::1/x", ImageRefError::Host("[::1".into()))]
#[case::ipv6_without_brackets("2001:db8::1/x", ImageRefError::Port("db8::1".into()))]
#[case::ipv6_with_zone("[fe80::1%eth0]/x", ImageRefError::Host("[fe80::1%eth0]".into()))]
#[case::ipv6_with_ipv4_inside("[::ffff:1.2.3.4]/x", ImageRefError::Host("[::ffff:1.2.3.4]".into()))]
#[case::ipv6_nonsense("[:::]/x", ImageRefError::Host("[:::]".into()))]
#[case::text_after_ipv6("[::1]x/y", ImageRefError::Host("[::1]x".into()))]
#[case::no_port("host:/x", ImageRefError::Port(String::new()))]
#[case::port_zero("host:0/x", ImageRefError::Port("0".into()))]
#[case::port_too_large("host:65536/x", ImageRefError::Port("65536".into()))]
#[case::port_with_sign("host:+5000/x", ImageRefError::Port("+5000".into()))]
#[case::port_of_letters("host:http/x", ImageRefError::Port("http".into()))]
fn refuses(#[case] text: &str, #[case] want: ImageRefError) {
    assert_eq!(ImageRef::parse(&filled(text)), Err(want));
}

#[rstest]
#[case::short("x@sha256:ab")]
#[case::unknown("x@md5:d41d8cd98f00b204e9800998ecf8427e")]
#[case::capital("x@sha256:F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2F2")]
#[case::empty("x@")]
#[case::two("x@{F2}@{F2}")]
fn refuses_a_bad_digest(#[case] text: &str) {
    assert!(matches!(ImageRef::parse(&filled(text)), Err(ImageRefError::Digest(_))));
}

#[test]
fn a_bad_tag_before_a_digest_is_not_overlooked() {
    assert_eq!(
        ImageRef::parse(&format!("x:-@{F2}")),
        Err(ImageRefError::Tag("-".into()))
    );
}

#[test]
fn lengths_are_limited() {
    let longest = "a".repeat(255 - "docker.io/library/".len());
    assert!(ImageRef::parse(&longest).is_ok());
    assert_eq!(
        ImageRef::parse(&format!("{longest}a")),
        Err(ImageRefError::TooLong { found: 256, max: 255 })
    );
    assert!(ImageRef::parse(&format!("x:{}", "t".repeat(128))).is_ok());
    assert!(matches!(
        ImageRef::parse(&format!("x:{}", "t".repeat(129))),
        Err(ImageRefError::Tag(_))
    ));
}

#[rstest]
#[case::no_name("", "latest", ImageRefError::Empty)]
#[case::no_tag("nginx", "", ImageRefError::Empty)]
#[case::tag_in_name("nginx:1", "latest", ImageRefError::NameWithReference("nginx:1".into()))]
#[case::digest_in_name("nginx@{F2}", "latest", ImageRefError::NameWithReference("nginx@{F2}".into()))]
#[case::tag_and_digest("nginx", "1@{F2}", ImageRefError::Digest(crate::DigestError::UnknownAlgorithm("1@sha256".into())))]
#[case::url("http://nginx", "1", ImageRefError::Scheme("http://nginx".into()))]
fn parts_that_do_not_fit_are_refused(#[case] name: &str, #[case] tag: &str, #[case] want: ImageRefError) {
    let want = match want {
        ImageRefError::NameWithReference(name) => ImageRefError::NameWithReference(filled(&name)),
        other => other,
    };
    assert_eq!(ImageRef::from_parts(&filled(name), &filled(tag)), Err(want));
}

#[test]
fn error_texts_stay_short_whatever_was_typed() {
    let error = ImageRef::parse(&"A".repeat(100_000)).unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
    let error = ImageRef::from_parts(&"a:".repeat(50_000), "b").unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
}

#[test]
fn is_a_string_in_json() {
    let image: ImageRef = serde_json::from_str("\"docker.io/library/nginx\"").unwrap();
    assert_eq!(serde_json::to_string(&image).unwrap(), "\"nginx:latest\"");
    let error = serde_json::from_str::<ImageRef>("\"Nginx\"").unwrap_err();
    assert!(error.to_string().contains("image names are lower case"), "{error}");
}

fn filled(text: &str) -> String {
    text.replace("{F2}", F2).replace("{HEX64}", HEX64)
}

/// Every printed form reads back as the same value, and printing again changes nothing.
fn reads_back(image: &ImageRef) -> Result<(), String> {
    let forms = [
        ("familiar", ImageRef::parse(&image.familiar())),
        ("canonical", ImageRef::parse(&image.canonical())),
        ("displayed", image.to_string().parse()),
        ("parts", ImageRef::from_parts(image.name(), &image.tag_text())),
    ];
    for (form, read) in forms {
        if read.as_ref() != Ok(image) {
            return Err(format!("the {form} form of {image:?} reads back as {read:?}"));
        }
    }
    Ok(())
}

fn a_digest() -> impl Strategy<Value = String> {
    prop_oneof!["sha256:[0-9a-f]{64}", "sha384:[0-9a-f]{96}", "sha512:[0-9a-f]{128}"]
}

fn a_host() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("docker.io".to_owned()),
        Just("index.docker.io".to_owned()),
        "localhost(:[1-9][0-9]{0,3})?",
        "[a-zA-Z0-9]{1,8}(\\.[a-z0-9]{1,5}){1,2}(:[1-9][0-9]{0,3})?",
        any::<(u16, u16)>().prop_map(|(a, b)| format!("[{a:x}:{b:x}::1]:5000")),
    ]
}

fn a_reference() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-z0-9]{1,6}(([._]|__|-{1,3})[a-z0-9]{1,4}){0,2}",
        1 => prop_oneof!["localhost", "library", "sha256", "sha512", "[0-9a-f]{64}"],
    ];
    let path = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    let tag = prop_oneof!["[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", "[0-9a-f]{64}"];
    (
        prop::option::of(a_host()),
        path,
        prop::option::of(tag),
        prop::option::of(a_digest()),
    )
        .prop_map(|(host, path, tag, digest)| {
            let host = host.map(|host| host + "/").unwrap_or_default();
            let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
            let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
            format!("{host}{path}{tag}{digest}")
        })
}

proptest! {
    #[test]
    fn what_is_read_is_printed_so_that_it_reads_the_same(text in a_reference()) {
        if let Ok(image) = ImageRef::parse(&text) {
            reads_back(&image).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn well_formed_references_with_a_host_are_read(
        host in a_host(),
        path in "[a-z0-9]{1,9}(/[a-z0-9]{1,9}){0,2}",
        digest in prop::option::of(a_digest()),
    ) {
        let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
        let image = ImageRef::parse(&format!("{host}/{path}{digest}"));
        prop_assert!(image.is_ok(), "{:?}", image);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), other in any::<String>()) {
        for image in [ImageRef::parse(&text), ImageRef::from_parts(&text, &other)].into_iter().flatten() {
            reads_back(&image).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn text_from_the_alphabet_of_references_is_read_or_refused(text in "[a-cA-B0-2:/@.\\[\\]_-]{1,24}") {
        if let Ok(image) = ImageRef::parse(&text) {
            reads_back(&image).map_err(TestCaseError::fail)?;
        }
    }
}
