//! Docker's grammar of image references, as the server knows it.

use rstest::rstest;

use crate::case::{Case, accept, check, refuse};
use crate::image_list_pull_job;
use crate::image_pull_job;
use crate::kind::Kind;
use crate::target::Target;

const DIGEST: &str = "sha256:f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2";

fn good() -> Vec<(&'static str, String)> {
    vec![
        ("name alone", "ubuntu".into()),
        ("name and tag", "nginx:1.9.1".into()),
        ("owner and name", "foo/bar".into()),
        ("full name", "docker.io/library/ubuntu:latest".into()),
        ("host with port", "myregistry:5000/my/image:v1".into()),
        (
            "host with dots",
            "registry.cn-hangzhou.aliyuncs.com/jilimoxing/test:nginx".into(),
        ),
        ("host in capitals", "Registry.Example/team/app".into()),
        ("localhost", "localhost/app".into()),
        ("IPv4 host", "10.0.0.1:5000/app".into()),
        ("IPv6 host", "\"[fd00::1]:5000/app\"".into()),
        ("digest", format!("myregistry:5000/my/image@{DIGEST}")),
        ("tag and digest", format!("ubuntu:20.04@{DIGEST}")),
        ("longest tag", format!("nginx:{}", "t".repeat(128))),
        ("separators", "a.b/c-d/e_f/g__h/i---j".into()),
        ("tag in capitals", "nginx:Stable_1.0-RC".into()),
        ("largest port", "host:65535/app".into()),
        ("name that looks like a host", "host.example".into()),
    ]
}

fn bad() -> Vec<(&'static str, String, &'static str)> {
    const GRAMMAR: &str = "invalid image: it must be [host[:port]/]name[:tag][@digest]";
    const ID: &str = "invalid image: an image id cannot be pulled";
    const LONG: &str = "invalid image: the name without tag and digest must have at most 255 characters";
    let hex = &DIGEST["sha256:".len()..];
    vec![
        ("capitals", "INVALID_IMAGE_REF".into(), GRAMMAR),
        ("owner in capitals", "UPPERCASE/image".into(), GRAMMAR),
        ("name in capitals", "registry.example/team/App".into(), GRAMMAR),
        ("blank", "\"nginx latest\"".into(), GRAMMAR),
        ("blank at the end", "\"nginx \"".into(), GRAMMAR),
        ("line break at the end", "\"nginx\\n\"".into(), GRAMMAR),
        ("web address", "\"https://registry.example/nginx\"".into(), GRAMMAR),
        ("tag without name", "\":latest\"".into(), GRAMMAR),
        ("colon without tag", "\"nginx:\"".into(), GRAMMAR),
        ("two tags", "\"nginx:1:2\"".into(), GRAMMAR),
        ("tag that begins with a dot", "\"nginx:.1\"".into(), GRAMMAR),
        ("tag that is too long", format!("nginx:{}", "t".repeat(129)), GRAMMAR),
        ("digest that is too short", "\"nginx@sha256:abc\"".into(), GRAMMAR),
        ("digest of an unknown kind", format!("nginx@md5:{hex}"), GRAMMAR),
        (
            "digest in capitals",
            format!("nginx@sha256:{}", hex.to_uppercase()),
            GRAMMAR,
        ),
        ("digest alone", format!("\"@{DIGEST}\""), GRAMMAR),
        ("slash at the end", "nginx/".into(), GRAMMAR),
        ("slash at the beginning", "/nginx".into(), GRAMMAR),
        ("two slashes", "foo//bar".into(), GRAMMAR),
        ("three underscores", "a___b".into(), GRAMMAR),
        ("hyphen at the end", "foo-/bar".into(), GRAMMAR),
        ("port 0", "host:0/app".into(), GRAMMAR),
        ("port that is too large", "host:65536/app".into(), GRAMMAR),
        ("port that is a word", "host:http/app".into(), GRAMMAR),
        ("host with an underscore", "my_registry.example/app".into(), GRAMMAR),
        ("other letters", "größe".into(), GRAMMAR),
        ("image id", hex.to_owned(), ID),
        ("image id with its kind", DIGEST.into(), ID),
        ("image id of another kind", format!("sha512:{hex}{hex}"), ID),
        (
            "name that is too long",
            format!("host.example/{}", "n".repeat(243)),
            LONG,
        ),
    ]
}

fn cases(spec: fn(&str) -> String) -> Vec<Case> {
    let good = good().into_iter().map(|(name, image)| accept(name, spec(&image)));
    let bad = bad()
        .into_iter()
        .map(|(name, image, message)| refuse(name, spec(&image), message));
    good.chain(bad).collect()
}

#[rstest]
#[tokio::test]
async fn of_an_image_pull_job(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let cases = cases(|image| format!("{{image: {image}}}"));
    check(
        &target.server().await,
        Kind::ImagePullJob,
        &cases,
        image_pull_job::completed,
    )
    .await;
}

#[rstest]
#[tokio::test]
async fn of_an_image_list_pull_job(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let cases = cases(|image| format!("{{images: [busybox, {image}]}}"));
    let server = target.server().await;
    check(&server, Kind::ImageListPullJob, &cases, image_list_pull_job::completed).await;
}
