use larder_model::{ImageRef, NodeName, Reason};
use proptest::prelude::*;
use rstest::rstest;
use secrecy::{ExposeSecret, SecretString};

use super::*;

/// What a binding borrows from.
#[derive(Clone)]
struct Use {
    node: NodeName,
    uid: String,
    image: ImageRef,
    claim: String,
}

impl Use {
    fn new() -> Self {
        Self {
            node: "node-1".parse().unwrap(),
            uid: "uid-1".to_owned(),
            image: "registry.example/team/app:v1".parse().unwrap(),
            claim: "job-1".to_owned(),
        }
    }

    fn binding(&self) -> Binding<'_> {
        Binding {
            node: &self.node,
            node_image_uid: &self.uid,
            image: &self.image,
            claim_uid: &self.claim,
        }
    }
}

fn logins() -> Vec<Login> {
    let token = Login {
        identity_token: Some("t0ken".into()),
        ..Login::new("", "")
    };
    vec![Login::new("ann", "s3cret"), token]
}

fn pair() -> KeyPair {
    KeyPair::generate().unwrap()
}

type Plain = (String, String, Option<String>);

fn plain(logins: &[Login]) -> Vec<Plain> {
    let text = |secret: &SecretString| secret.expose_secret().to_owned();
    logins
        .iter()
        .map(|l| {
            (
                l.username.clone(),
                text(&l.password),
                l.identity_token.as_ref().map(text),
            )
        })
        .collect()
}

#[test]
fn opens_where_it_was_sealed_for() {
    let (pair, used) = (pair(), Use::new());
    let sealed = seal(pair.public(), &used.binding(), "rv-1", &logins()).unwrap();
    assert_eq!(plain(&open(&pair, &used.binding(), &sealed).unwrap()), plain(&logins()));
    assert_eq!(sealed.key, pair.public().fingerprint());
}

#[test]
fn the_public_key_travels_as_text() {
    let (pair, used) = (pair(), Use::new());
    let read: PublicKey = pair.public().to_string().parse().unwrap();
    assert_eq!(&read, pair.public());
    assert_eq!(read.fingerprint().len(), 32);
    let sealed = seal(&read, &used.binding(), "", &logins()).unwrap();
    assert_eq!(open(&pair, &used.binding(), &sealed).unwrap().len(), 2);
}

#[rstest]
#[case::node(|used: &mut Use| used.node = "node-2".parse().unwrap())]
#[case::node_image(|used: &mut Use| used.uid = "uid-2".to_owned())]
#[case::registry(|used: &mut Use| used.image = "evil.example/team/app:v1".parse().unwrap())]
#[case::image(|used: &mut Use| used.image = "registry.example/team/other:v1".parse().unwrap())]
#[case::tag(|used: &mut Use| used.image = "registry.example/team/app:v2".parse().unwrap())]
#[case::claim(|used: &mut Use| used.claim = "job-2".to_owned())]
fn another_use_is_refused(#[case] change: fn(&mut Use)) {
    let (pair, used) = (pair(), Use::new());
    let sealed = seal(pair.public(), &used.binding(), "", &logins()).unwrap();
    let mut other = used.clone();
    change(&mut other);
    let error = open(&pair, &other.binding(), &sealed).unwrap_err();
    assert_eq!(error, OpenError::Refused { id: sealed.id.clone() });
    assert_eq!(error.reason(), Reason::CredentialsUnreadable);
    assert_ne!(sealed_id(pair.public(), &other.binding(), ""), sealed.id);
}

#[test]
fn another_key_is_refused() {
    let used = Use::new();
    let sealed = seal(pair().public(), &used.binding(), "", &logins()).unwrap();
    assert_eq!(
        open(&pair(), &used.binding(), &sealed).unwrap_err(),
        OpenError::Refused { id: sealed.id.clone() }
    );
}

#[rstest]
#[case::nothing("")]
#[case::not_base64("%%%")]
#[case::too_short("AQID")]
fn what_was_never_sealed_is_refused(#[case] data: &str) {
    let sealed = Sealed {
        id: "x".into(),
        key: String::new(),
        data: data.into(),
    };
    let error = open(&pair(), &Use::new().binding(), &sealed).unwrap_err();
    assert_eq!(error, OpenError::Refused { id: "x".into() });
}

#[test]
fn the_id_follows_the_state_of_the_secrets_and_the_bytes_are_never_the_same() {
    let (pair, used) = (pair(), Use::new());
    let seal = |source| seal(pair.public(), &used.binding(), source, &logins()).unwrap();
    let (first, again, edited) = (seal("rv-1"), seal("rv-1"), seal("rv-2"));
    assert_eq!(first.id, again.id);
    assert_eq!(first.id, sealed_id(pair.public(), &used.binding(), "rv-1"));
    assert_ne!(first.data, again.data);
    assert_ne!(first.id, edited.id);
}

#[test]
fn nothing_secret_is_shown() {
    let (pair, used) = (pair(), Use::new());
    let sealed = seal(pair.public(), &used.binding(), "", &logins()).unwrap();
    let error = open(&self::pair(), &used.binding(), &sealed).unwrap_err();
    let shown = format!("{:?} {pair:?} {pair:#?} {sealed:?} {error:?} {error}", logins());
    let private: Vec<String> = pair.private().secret_bytes().iter().map(ToString::to_string).collect();
    for secret in ["s3cret", "t0ken", &private.join(", "), &private.join(",\n")] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn the_length_tells_nothing_about_a_short_password() {
    let (pair, used) = (pair(), Use::new());
    let len = |password: &str| {
        seal(pair.public(), &used.binding(), "", &[Login::new("ann", password)])
            .unwrap()
            .data
            .len()
    };
    assert_eq!(len("a"), len(&"a".repeat(100)));
}

#[test]
fn too_much_is_refused() {
    let (pair, used) = (pair(), Use::new());
    let large = [Login::new("ann", "x".repeat(20_000))];
    let error = seal(pair.public(), &used.binding(), "", &large).unwrap_err();
    assert!(
        matches!(error, SealError::TooLarge { found } if 20_000 < found),
        "{error}"
    );
}

#[rstest]
#[case::empty("")]
#[case::short("AAAA")]
#[case::not_base64("?")]
fn text_that_is_no_key_is_refused(#[case] text: &str) {
    assert_eq!(PublicKey::parse(text), Err(PublicKeyError));
}

#[test]
fn nothing_is_sealed_to_a_key_that_gives_everybody_the_same_secret() {
    let zero = PublicKey::from_bytes(&[0; 32]).unwrap();
    assert_eq!(
        seal(&zero, &Use::new().binding(), "", &logins()),
        Err(SealError::UnusableKey)
    );
}

/// Boxes in a NodeImage outlive an upgrade of controller or agent, and key files outlive many.
#[test]
fn a_key_file_and_a_box_of_the_first_version_still_open() {
    use std::io::Write;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(FIRST_KEY_FILE.as_bytes()).unwrap();
    let pair = KeyPair::load_or_create(file.path()).unwrap();
    let used = Use::new();
    let sealed = Sealed {
        id: FIRST_ID.into(),
        key: pair.public().fingerprint(),
        data: FIRST_DATA.into(),
    };
    assert_eq!(plain(&open(&pair, &used.binding(), &sealed).unwrap()), plain(&logins()));
    assert_eq!(sealed_id(pair.public(), &used.binding(), "rv-1"), FIRST_ID);
}

const FIRST_KEY_FILE: &str = r#"{"format":"larder-node-key-v1","public":"qsArSl03/7h7D8UGnfHTyfQmEEO8cFGcLsApOb8cC3U=","private":"3+xmJ1VTfZWEPpDBFO8uVW1Zo2R9BdKhx0l4s7B0zJA="}"#;
const FIRST_ID: &str = "366a21ce07503a581dc12a395f754d45";
const FIRST_DATA: &str = "AdKiXILnFqUdXG5o6b6l5w8EkVTqZWUu6ioKL79gXDEMQ+dLUvXQcns+Maa6AQ/PB1JtTmhDYM5D98Q6CvPh/7jKAuZ8nq7mVMzz\
     4JPwNY5xH3h6MueA+PwxaYnq1swpy3GgE7yriMScDSML5snDGfTh3BLZhP08/HQ3lump6Ci0td6fwWHKdQYNJAe/6qWVwrANFR3h\
     EiRdvyrAgLKx6ZlvFm7Cfo4wBoDRrHHlUAucPmzNiFznL9OjYFrNpQJQU1Kk1qUhBamSSeSNcq8bgs1pqF70qrFyHEkPbX6Pl+A7\
     eGIFbQGLOmeSczpEhK2ReIovYNNPIWa2CVq/LVGLiMPOV5DJtci95X6kPDWRmrF0kpQ2zV5Z8qVx9ghN2Jl/plabUrlWyIQIjhtV\
     FPHG37U=";

#[test]
fn a_box_with_something_else_inside_is_told_apart() {
    use base64::Engine;
    let (pair, used) = (pair(), Use::new());
    let mut sealed = seal(pair.public(), &used.binding(), "", &logins()).unwrap();
    let purpose = b"larder registry credentials v1";
    let aad = used.binding().to_bytes();
    let (encapsulated, ciphertext) = key::suite()
        .seal(purpose, &aad, b"{\"later\":true}", &pair.public().to_hpke())
        .unwrap();
    sealed.data = base64::engine::general_purpose::STANDARD.encode([&[1][..], &encapsulated.0, &ciphertext].concat());
    let error = open(&pair, &used.binding(), &sealed).unwrap_err();
    assert_eq!(error, OpenError::Malformed { id: sealed.id });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_credentials_come_back(username in ".{0,40}", password in ".{0,200}", token in prop::option::of(".{0,40}")) {
        let (pair, used) = (pair(), Use::new());
        let login = Login { identity_token: token.map(SecretString::from), ..Login::new(username, password) };
        let sealed = seal(pair.public(), &used.binding(), "", std::slice::from_ref(&login)).unwrap();
        prop_assert_eq!(plain(&open(&pair, &used.binding(), &sealed).unwrap()), plain(&[login]));
    }

    #[test]
    fn one_changed_bit_is_refused(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        use base64::Engine;
        use base64::engine::general_purpose::STANDARD;
        let (pair, used) = (pair(), Use::new());
        let mut sealed = seal(pair.public(), &used.binding(), "", &logins()).unwrap();
        let mut bytes = STANDARD.decode(&sealed.data).unwrap();
        let at = at.index(bytes.len());
        // X25519 ignores the highest bit of a public key, but the key schedule binds the bytes as they were sent.
        bytes[at] ^= 1 << bit;
        sealed.data = STANDARD.encode(bytes);
        prop_assert_eq!(open(&pair, &used.binding(), &sealed).unwrap_err(), OpenError::Refused { id: sealed.id.clone() });
    }
}
