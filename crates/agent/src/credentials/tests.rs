use larder_api::node_image::PullSecretReference;
use larder_api::node_image::{Claim, ImageSpec};
use larder_planner::node::entries;
use larder_seal::seal;
use rstest::rstest;

use super::*;

struct Scene {
    node: NodeName,
    order: OrderId,
    image: ImageRef,
    credentials: Credentials,
    _folder: tempfile::TempDir,
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    Scene {
        node: NodeName::parse("node-1").unwrap(),
        order: OrderId {
            uid: "object".into(),
            generation: 1,
        },
        image: ImageRef::parse("reg.io/app:1").unwrap(),
        credentials: Credentials::new(Some(key), None),
        _folder: folder,
    }
}

impl Scene {
    /// Sealed as the controller does it, with some of it changed.
    fn sealed(&self, change: impl Fn(&mut Bound)) -> SealedCredential {
        let mut bound = Bound {
            node: self.node.clone(),
            uid: self.order.uid.clone(),
            image: self.image.clone(),
            claim: "job".into(),
        };
        change(&mut bound);
        let binding = Binding {
            node: &bound.node,
            node_image_uid: &bound.uid,
            image: &bound.image,
            claim_uid: &bound.claim,
        };
        let key = self.credentials.key.as_ref().unwrap().public();
        let sealed = seal(key, &binding, "secret/1", &[Login::new("ann", "s3cret")]).unwrap();
        SealedCredential {
            id: "a".into(),
            key: sealed.key,
            data: sealed.data,
        }
    }

    async fn ask(
        &self,
        sealed: Vec<SealedCredential>,
        named: bool,
        change: impl Fn(&mut ImageTagSpec),
    ) -> Result<Logins, Failure> {
        let mut tag = ImageTagSpec {
            tag: "1".into(),
            claims: vec![Claim {
                uid: "job".into(),
                version: 0,
            }],
            credentials: sealed.iter().map(|sealed| sealed.id.clone()).collect(),
            ..ImageTagSpec::default()
        };
        change(&mut tag);
        let image = ImageSpec {
            tags: vec![tag],
            pull_secrets: named.then(PullSecretReference::default).into_iter().collect(),
            ..ImageSpec::default()
        };
        let spec = NodeImageSpec {
            images: [("reg.io/app".to_owned(), image)].into(),
            sealed_credentials: sealed,
        };
        let entry = entries(&spec).into_values().next().unwrap();
        self.credentials
            .for_entry(&self.node, &self.order, &spec, &entry, &self.image)
            .await
    }
}

struct Bound {
    node: NodeName,
    uid: String,
    image: ImageRef,
    claim: String,
}

#[tokio::test]
async fn what_was_sealed_for_this_use_opens() {
    let scene = scene();
    let logins = scene.ask(vec![scene.sealed(|_| {})], false, |_| {}).await.ok().unwrap();
    assert_eq!(logins.credentials, [Credential::basic("ann", "s3cret")]);
}

#[tokio::test]
async fn a_hand_written_entry_is_served_for_the_object_itself() {
    let scene = scene();
    let sealed = scene.sealed(|bound| bound.claim = "object".into());
    let logins = scene
        .ask(vec![sealed], true, |tag| tag.claims.clear())
        .await
        .ok()
        .unwrap();
    assert_eq!(logins.credentials.len(), 1);
}

#[rstest]
#[case::another_node(|bound: &mut Bound| bound.node = NodeName::parse("node-2").unwrap())]
#[case::another_object(|bound: &mut Bound| bound.uid = "other".into())]
#[case::another_registry(|bound: &mut Bound| bound.image = ImageRef::parse("evil.io/app:1").unwrap())]
#[case::another_image(|bound: &mut Bound| bound.image = ImageRef::parse("reg.io/app:2").unwrap())]
#[case::another_job(|bound: &mut Bound| bound.claim = "other".into())]
#[tokio::test]
async fn what_was_sealed_for_another_use_does_not_open(#[case] change: fn(&mut Bound)) {
    let scene = scene();
    let failure = scene
        .ask(vec![scene.sealed(change)], false, |_| {})
        .await
        .err()
        .unwrap();
    assert_eq!(failure.reason, Reason::CredentialsUnreadable);
    assert!(!failure.words.contains("s3cret"));
}

#[tokio::test]
async fn another_key_is_named() {
    let scene = scene();
    let mut sealed = scene.sealed(|_| {});
    sealed.key = "0123".into();
    let failure = scene.ask(vec![sealed], false, |_| {}).await.err().unwrap();
    assert!(failure.words.contains("the key 0123"), "{}", failure.words);
}

#[tokio::test]
async fn one_that_opens_is_enough() {
    let scene = scene();
    let mut broken = scene.sealed(|_| {});
    broken.id = "b".into();
    broken.data = "AAAA".into();
    let logins = scene
        .ask(vec![broken, scene.sealed(|_| {})], false, |_| {})
        .await
        .ok()
        .unwrap();
    assert_eq!(logins.credentials.len(), 1);
}

#[tokio::test]
async fn named_secrets_that_are_not_sealed_are_waited_for() {
    let failure = scene().ask(vec![], true, |tag| tag.claims.clear()).await.err().unwrap();
    assert_eq!(failure.reason, Reason::SecretMissing);
}

#[tokio::test]
async fn a_credential_that_is_not_there_is_not_passed_over() {
    let failure = scene()
        .ask(vec![], false, |tag| tag.credentials = vec!["gone".into()])
        .await
        .err()
        .unwrap();
    assert_eq!(failure.reason, Reason::CredentialsUnreadable);
}

#[tokio::test]
async fn without_any_wish_the_pull_is_anonymous() {
    let logins = scene().ask(vec![], false, |_| {}).await.ok().unwrap();
    assert!(logins.credentials.is_empty());
}
