//! Pins, aliases, and images that vanish.

use super::*;
use larder_model::ByteSize;

fn holdings(taken: u64, tags: &[&str]) -> Holdings {
    Holdings {
        taken: at(taken),
        names: tags
            .iter()
            .map(|tag| (image_of(tag), (format!("id-{tag}"), ByteSize(100))))
            .collect(),
        ..Holdings::default()
    }
}

fn own(tag: &str, alias: Option<&ImageRef>, digest: &str) -> OwnName {
    OwnName {
        image: image_of(tag),
        alias: alias.cloned(),
        digest: format!("sha256:{digest}"),
    }
}

fn pinned(name: &str) -> ImageTagSpec {
    ImageTagSpec { pin: true, ..tag(name) }
}

/// A board on which every entry has been pulled.
fn done(tags: &[ImageTagSpec]) -> Board {
    let mut board = board(9, tags);
    for (run, name) in pulls(&board.decide(at(0), &wall())) {
        board.ended(run, pulled(&name), at(1), &wall());
    }
    board
}

#[test]
fn a_pin_is_set_once_and_followed_when_the_tag_moves() {
    let mut board = done(&[pinned("1")]);
    board.picture(holdings(2, &["1"]), at(2));
    assert_eq!(board.decide(at(2), &wall()), [Step::Chore(Chore::Pin(image_of("1")))]);
    assert!(board.decide(at(2), &wall()).is_empty());
    board.chore_ended(&Chore::Pin(image_of("1")), Ok(()), at(3));
    assert!(
        board.decide(at(3), &wall()).is_empty(),
        "the picture is older than the chore"
    );
    let mut picture = holdings(4, &["1"]);
    picture.own = vec![own("1", None, "1")];
    board.picture(picture, at(4));
    assert!(board.decide(at(4), &wall()).is_empty());
    let mut picture = holdings(5, &["1"]);
    picture.own = vec![own("1", None, "elsewhere")];
    board.picture(picture, at(5));
    assert_eq!(board.decide(at(5), &wall()), [Step::Chore(Chore::Pin(image_of("1")))]);
}

#[test]
fn a_pin_goes_with_its_entry_and_an_alias_stays() {
    let name = ImageRef::parse("other:1").unwrap();
    let mut board = done(&[tag("2")]);
    let mut picture = holdings(2, &["1", "2"]);
    picture.own = vec![own("1", None, "1"), own("1", Some(&name), "1")];
    board.picture(picture, at(2));
    assert_eq!(board.decide(at(2), &wall()), [Step::Chore(Chore::Unpin(image_of("1")))]);
}

#[test]
fn nothing_is_unpinned_before_orders_are_known_or_after_they_were_withdrawn() {
    let mut picture = holdings(2, &["1"]);
    picture.own = vec![own("1", None, "1")];
    let mut fresh = Board::new(1);
    fresh.picture(picture.clone(), at(2));
    assert!(fresh.decide(at(2), &wall()).is_empty());
    let mut withdrawn = done(&[pinned("1")]);
    withdrawn.withdraw();
    withdrawn.picture(picture, at(2));
    assert!(withdrawn.decide(at(2), &wall()).is_empty());
}

#[test]
fn withdrawn_orders_give_up_what_runs() {
    let mut board = board(1, &[tag("1")]);
    board.decide(at(0), &wall());
    board.withdraw();
    assert_eq!(board.decide(at(0), &wall()), [Step::Cancel { run: 1 }]);
}

#[test]
fn a_pin_beyond_the_budget_is_refused_with_a_reason_and_the_image_counts_as_there() {
    let mut board = done(&[pinned("1"), pinned("2")]);
    let mut picture = holdings(2, &["1", "2"]);
    picture.own = vec![own("1", None, "1")];
    picture.pin_budget = Some(ByteSize(199));
    board.picture(picture, at(2));
    assert!(board.decide(at(2), &wall()).is_empty());
    let status = shown(&board, "2");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Succeeded, Some(Reason::NoSpace))
    );
    assert!(status.message.unwrap().contains("not pinned"));
}

#[test]
fn pins_that_come_together_do_not_exceed_the_budget_together() {
    let mut board = done(&[pinned("1"), pinned("2")]);
    let mut picture = holdings(2, &["1", "2"]);
    picture.pin_budget = Some(ByteSize(199));
    board.picture(picture, at(2));
    assert_eq!(board.decide(at(2), &wall()), [Step::Chore(Chore::Pin(image_of("1")))]);
    assert_eq!(shown(&board, "1").reason(), None);
    assert_eq!(shown(&board, "2").reason(), Some(Reason::NoSpace));
}

#[test]
fn a_runtime_that_cannot_pin_says_so() {
    let mut board = done(&[pinned("1")]);
    let mut picture = holdings(2, &["1"]);
    picture.no_pin = Some("containerd 1.6 knows no pins".into());
    board.picture(picture, at(2));
    assert!(board.decide(at(2), &wall()).is_empty());
    assert!(
        shown(&board, "1")
            .message
            .unwrap()
            .contains("containerd 1.6 knows no pins")
    );
}

#[test]
fn a_chore_that_fails_is_told_and_tried_again_later() {
    let mut aliased = tag("1");
    aliased.alias = Some("other:1".into());
    let name = ImageRef::parse("other:1").unwrap();
    let chore = Chore::Alias(image_of("1"), name);
    let mut board = done(&[aliased]);
    board.picture(holdings(2, &["1"]), at(2));
    assert_eq!(board.decide(at(2), &wall()), [Step::Chore(chore.clone())]);
    let note = Note {
        reason: None,
        message: "taken".into(),
    };
    board.chore_ended(&chore, Err(note), at(2));
    assert!(board.decide(at(2), &wall()).is_empty());
    assert_eq!(shown(&board, "1").message.as_deref(), Some("taken"));
    let next = board.wake_at().unwrap();
    assert_eq!(board.decide(next, &wall()), [Step::Chore(chore)]);
}

/// Each of them in turn once took the name from the other, several times a second.
#[test]
fn a_name_that_two_entries_ask_for_comes_to_rest() {
    let name = ImageRef::parse("other:1").unwrap();
    let aliased = |version: &str| {
        let mut tag = tag(version);
        tag.alias = Some("other:1".into());
        tag
    };
    let mut board = done(&[aliased("1"), aliased("2")]);
    board.picture(holdings(2, &["1", "2"]), at(2));
    assert_eq!(
        board.decide(at(2), &wall()),
        [Step::Chore(Chore::Alias(image_of("1"), name.clone()))]
    );
    assert!(shown(&board, "2").message.unwrap().contains("app:1 has that name"));

    let mut picture = holdings(4, &["1", "2"]);
    picture.own = vec![own("2", Some(&name), "2")];
    board.picture(picture, at(4));
    board.chore_ended(&Chore::Alias(image_of("1"), name.clone()), Ok(()), at(3));
    assert!(
        board.decide(at(4), &wall()).is_empty(),
        "whoever was named last keeps it"
    );
    assert!(shown(&board, "1").message.unwrap().contains("app:2 has that name"));
    assert_eq!(shown(&board, "2").message, None);
}

#[test]
fn an_image_that_vanished_is_pulled_again_and_stays_a_success_for_its_job() {
    let mut limited = tag("1");
    limited.pull_policy.active_deadline_seconds = Some(5);
    let mut board = done(&[limited]);
    board.picture(holdings(100, &[]), at(100));
    let steps = board.decide(at(100), &wall());
    assert_eq!(
        pulls(&steps).len(),
        1,
        "its deadline is over, but it was answered before"
    );
    assert!(shown(&board, "1").last_succeeded.is_some());
    board.ended(2, pulled("1"), at(101), &wall());
    board.picture(holdings(102, &[]), at(102));
    assert!(
        pulls(&board.decide(at(102), &wall())).is_empty(),
        "the second time it waits"
    );
    assert_eq!(board.wake_at(), Some(at(162)));
}

#[test]
fn a_picture_from_before_the_pull_ended_takes_nothing_back() {
    let mut board = board(1, &[tag("1")]);
    board.decide(at(0), &wall());
    board.ended(1, pulled("1"), at(10), &wall());
    board.picture(holdings(9, &[]), at(11));
    assert_eq!(phase(&board, "1"), Phase::Succeeded);
}
