//! Any text is either refused or becomes a reference whose every printed form reads back as the same value.
#![no_main]

use larder_model::ImageRef;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(image) = ImageRef::parse(text) else { return };
    assert_eq!(ImageRef::parse(&image.familiar()).as_ref(), Ok(&image), "familiar form");
    assert_eq!(ImageRef::parse(&image.canonical()).as_ref(), Ok(&image), "canonical form");
    assert_eq!(ImageRef::from_parts(image.name(), &image.tag_text()).as_ref(), Ok(&image), "name and tag");
});
