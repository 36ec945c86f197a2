//! Pins and aliases.

use super::*;
use larder_model::ByteSize;

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

#[test]
fn a_pin_is_set_once_and_followed_when_the_tag_moves() {
    let mut scheduler = done(&[pinned("1")]);
    scheduler.take_inventory(inventory_of(2, &["1"]), at(2));
    assert_eq!(
        scheduler.decide(at(2), &wall()),
        [NodeStep::PinOp(PinOp::Pin(image_of("1")))]
    );
    assert!(scheduler.decide(at(2), &wall()).is_empty());
    scheduler.pin_op_ended(&PinOp::Pin(image_of("1")), Ok(()), at(3));
    assert!(
        scheduler.decide(at(3), &wall()).is_empty(),
        "the inventory is older than the pin operation"
    );
    let mut inventory = inventory_of(4, &["1"]);
    inventory.own = vec![own("1", None, "1")];
    scheduler.take_inventory(inventory, at(4));
    assert!(scheduler.decide(at(4), &wall()).is_empty());
    let mut inventory = inventory_of(5, &["1"]);
    inventory.own = vec![own("1", None, "elsewhere")];
    scheduler.take_inventory(inventory, at(5));
    assert_eq!(
        scheduler.decide(at(5), &wall()),
        [NodeStep::PinOp(PinOp::Pin(image_of("1")))]
    );
}

#[test]
fn a_pin_goes_with_its_entry_and_an_alias_stays() {
    let name = ImageRef::parse("other:1").unwrap();
    let mut scheduler = done(&[tag("2")]);
    let mut inventory = inventory_of(2, &["1", "2"]);
    inventory.own = vec![own("1", None, "1"), own("1", Some(&name), "1")];
    scheduler.take_inventory(inventory, at(2));
    assert_eq!(
        scheduler.decide(at(2), &wall()),
        [NodeStep::PinOp(PinOp::Unpin(image_of("1")))]
    );
}

#[test]
fn nothing_is_unpinned_before_orders_are_known_or_after_they_were_withdrawn() {
    let mut inventory = inventory_of(2, &["1"]);
    inventory.own = vec![own("1", None, "1")];
    let mut fresh = NodeScheduler::new(1);
    fresh.take_inventory(inventory.clone(), at(2));
    assert!(fresh.decide(at(2), &wall()).is_empty());
    let mut withdrawn = done(&[pinned("1")]);
    withdrawn.withdraw();
    withdrawn.take_inventory(inventory, at(2));
    assert!(withdrawn.decide(at(2), &wall()).is_empty());
}

#[test]
fn withdrawn_orders_give_up_what_runs() {
    let mut scheduler = scheduler(1, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.withdraw();
    assert_eq!(scheduler.decide(at(0), &wall()), [NodeStep::Cancel { run: 1 }]);
}

#[test]
fn a_pin_beyond_the_budget_is_refused_with_a_reason_and_the_image_counts_as_there() {
    let mut scheduler = done(&[pinned("1"), pinned("2")]);
    let mut inventory = inventory_of(2, &["1", "2"]);
    inventory.own = vec![own("1", None, "1")];
    inventory.pin_budget = Some(ByteSize(199));
    scheduler.take_inventory(inventory, at(2));
    assert!(scheduler.decide(at(2), &wall()).is_empty());
    let status = shown(&scheduler, "2");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Succeeded, Some(Reason::NoSpace))
    );
    assert!(status.message.unwrap().contains("not pinned"));
}

#[test]
fn pins_that_come_together_do_not_exceed_the_budget_together() {
    let mut scheduler = done(&[pinned("1"), pinned("2")]);
    let mut inventory = inventory_of(2, &["1", "2"]);
    inventory.pin_budget = Some(ByteSize(199));
    scheduler.take_inventory(inventory, at(2));
    assert_eq!(
        scheduler.decide(at(2), &wall()),
        [NodeStep::PinOp(PinOp::Pin(image_of("1")))]
    );
    assert_eq!(shown(&scheduler, "1").reason(), None);
    assert_eq!(shown(&scheduler, "2").reason(), Some(Reason::NoSpace));
}

#[test]
fn a_runtime_that_cannot_pin_says_so() {
    let mut scheduler = done(&[pinned("1")]);
    let mut inventory = inventory_of(2, &["1"]);
    inventory.no_pin = Some("containerd 1.6 knows no pins".into());
    scheduler.take_inventory(inventory, at(2));
    assert!(scheduler.decide(at(2), &wall()).is_empty());
    assert!(
        shown(&scheduler, "1")
            .message
            .unwrap()
            .contains("containerd 1.6 knows no pins")
    );
}

#[test]
fn a_pin_that_fails_is_reported_and_tried_again_later() {
    let mut aliased = tag("1");
    aliased.alias = Some("other:1".into());
    let name = ImageRef::parse("other:1").unwrap();
    let pin_op = PinOp::Alias(image_of("1"), name);
    let mut scheduler = done(&[aliased]);
    scheduler.take_inventory(inventory_of(2, &["1"]), at(2));
    assert_eq!(scheduler.decide(at(2), &wall()), [NodeStep::PinOp(pin_op.clone())]);
    let note = Note {
        reason: None,
        message: "taken".into(),
    };
    scheduler.pin_op_ended(&pin_op, Err(note), at(2));
    assert!(scheduler.decide(at(2), &wall()).is_empty());
    assert_eq!(shown(&scheduler, "1").message.as_deref(), Some("taken"));
    let next = scheduler.wake_at().unwrap();
    assert_eq!(scheduler.decide(next, &wall()), [NodeStep::PinOp(pin_op)]);
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
    let mut scheduler = done(&[aliased("1"), aliased("2")]);
    scheduler.take_inventory(inventory_of(2, &["1", "2"]), at(2));
    assert_eq!(
        scheduler.decide(at(2), &wall()),
        [NodeStep::PinOp(PinOp::Alias(image_of("1"), name.clone()))]
    );
    assert!(shown(&scheduler, "2").message.unwrap().contains("app:1 has that name"));

    let mut inventory = inventory_of(4, &["1", "2"]);
    inventory.own = vec![own("2", Some(&name), "2")];
    scheduler.take_inventory(inventory, at(4));
    scheduler.pin_op_ended(&PinOp::Alias(image_of("1"), name.clone()), Ok(()), at(3));
    assert!(
        scheduler.decide(at(4), &wall()).is_empty(),
        "the last one to be named keeps it"
    );
    assert!(shown(&scheduler, "1").message.unwrap().contains("app:2 has that name"));
    assert_eq!(shown(&scheduler, "2").message, None);
}
