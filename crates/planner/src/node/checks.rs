//! The checks before a pull, with KubeEdge's thresholds and texts.
//!
//! `disk` looks at the filesystem that images fill, and also asks whether this image fits: three times the compressed
//! bytes that are missing, beside what running pulls were promised, below the share at which the kubelet cleans up.

use larder_model::{ByteSize, Check};

/// Usage in percent above which a check fails. Not at it: upstream compares with "greater than".
pub const USAGE_MAX: f64 = 80.0;

/// An image of n compressed bytes takes n in the content store and about twice that unpacked.
const ROOM_FACTOR: u64 = 3;

/// What was measured on the node. `None`: could not be read, and the check is passed over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Busy share of all processors, in percent.
    pub cpu: Option<f64>,
    /// Used share of memory, in percent.
    pub memory: Option<f64>,
    /// Size and free bytes of the image filesystem.
    pub image_fs: Option<(ByteSize, ByteSize)>,
    /// What is used of it, where known; filesystems keep something back, so it may be less than what is not free.
    pub image_fs_used: Option<ByteSize>,
    /// Compressed bytes of the image that are not on the node yet.
    pub missing: Option<ByteSize>,
}

/// What running pulls were promised, and where the kubelet's clean-up begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Bytes that running pulls will still take.
    pub bytes: ByteSize,
    /// Used share of the image filesystem, in percent, at which the kubelet cleans up.
    pub gc_threshold: u8,
}

/// Runs the checks in their order; the first that fails is the answer.
pub fn judge(checks: &[Check], measured: &Measured, promise: Promise) -> Result<(), String> {
    for check in checks {
        match check {
            Check::Cpu => usage(check, measured.cpu)?,
            Check::Memory => usage(check, measured.memory)?,
            Check::Disk => disk(measured, promise)?,
            Check::Unknown(other) => return Err(format!("check item {other} not support")),
        }
    }
    Ok(())
}

/// Bytes that an image of this many missing compressed bytes is promised.
pub fn room_for(missing: ByteSize) -> ByteSize {
    ByteSize(missing.0.saturating_mul(ROOM_FACTOR))
}

/// Bytes that images may still take up before the kubelet removes some.
pub fn room_before_clean_up(capacity: ByteSize, free: ByteSize, gc_threshold: u8) -> ByteSize {
    let limit = u128::from(capacity.0) * u128::from(gc_threshold) / 100;
    let room = limit.saturating_sub(u128::from((capacity - free).0));
    ByteSize(u64::try_from(room).unwrap_or(u64::MAX))
}

fn usage(what: &Check, percent: Option<f64>) -> Result<(), String> {
    match percent {
        Some(percent) if percent > USAGE_MAX => Err(format!(
            "current {what} usage is {percent:.2}, which exceeds the maximum allowed usage {USAGE_MAX:.2}"
        )),
        _ => Ok(()),
    }
}

fn disk(measured: &Measured, promise: Promise) -> Result<(), String> {
    let Some((capacity, free)) = measured.image_fs else {
        return Ok(());
    };
    let used = capacity - free;
    // Upstream's share, which is also `df`'s: what is kept back for root counts neither as used nor as available.
    let written = measured.image_fs_used.unwrap_or(used);
    usage(&Check::Disk, Some(share(written, written + free)))?;
    let Some(missing) = measured.missing.filter(|missing| missing.0 > 0) else {
        return Ok(());
    };
    let needed = room_for(missing);
    if needed.0.saturating_add(promise.bytes.0) <= room_before_clean_up(capacity, free, promise.gc_threshold).0 {
        return Ok(());
    }
    Err(format!(
        "the image needs {needed} ({missing} to download, unpacked about twice that), but of {capacity} on the image \
         filesystem {used} are used and {} promised to running pulls, and the kubelet cleans up at {} %",
        promise.bytes, promise.gc_threshold
    ))
}

#[expect(clippy::cast_precision_loss, reason = "a percentage for people, with two digits")]
fn share(part: ByteSize, whole: ByteSize) -> f64 {
    if whole.0 == 0 {
        0.0
    } else {
        part.0 as f64 * 100.0 / whole.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PROMISE: Promise = Promise {
        bytes: ByteSize(0),
        gc_threshold: 85,
    };

    fn checks(items: &[&str]) -> Vec<Check> {
        items.iter().map(|item| Check::from(*item)).collect()
    }

    #[rstest]
    #[case::nothing_asked(&[], 99.0, 99.0, Ok(()))]
    #[case::at_the_limit(&["cpu", "mem"], 80.0, 80.0, Ok(()))]
    #[case::cpu(&["cpu"], 80.009, 0.0, Err("current cpu usage is 80.01, which exceeds the maximum allowed usage 80.00"))]
    #[case::mem(&["mem"], 0.0, 91.5, Err("current mem usage is 91.50, which exceeds the maximum allowed usage 80.00"))]
    #[case::first_failure_is_the_answer(&["mem", "cpu"], 90.0, 95.0, Err("current mem usage is 95.00, which exceeds the maximum allowed usage 80.00"))]
    #[case::unknown(&["gpu"], 0.0, 0.0, Err("check item gpu not support"))]
    fn loads(#[case] items: &[&str], #[case] cpu: f64, #[case] memory: f64, #[case] want: Result<(), &str>) {
        let measured = Measured {
            cpu: Some(cpu),
            memory: Some(memory),
            ..Measured::default()
        };
        let got = judge(&checks(items), &measured, PROMISE);
        assert_eq!(got.as_ref().map(|&()| ()).map_err(String::as_str), want);
    }

    #[rstest]
    #[case::fits(1000, 900, Some(10), 0, true)]
    #[case::size_unknown_and_below_80(1000, 200, None, 0, true)]
    #[case::size_unknown_and_above_80(1000, 199, None, 0, false)]
    #[case::three_times_its_size_up_to_the_threshold(1000, 450, Some(100), 0, true)]
    #[case::one_byte_too_many(1000, 449, Some(100), 0, false)]
    #[case::promised_to_others(1000, 450, Some(100), 1, false)]
    #[case::nothing_is_missing(1000, 250, Some(0), 500, true)]
    #[case::no_overflow(u64::MAX, u64::MAX, Some(u64::MAX), u64::MAX, false)]
    fn disk_room(
        #[case] capacity: u64,
        #[case] free: u64,
        #[case] missing: Option<u64>,
        #[case] promised: u64,
        #[case] fits: bool,
    ) {
        let measured = Measured {
            image_fs: Some((ByteSize(capacity), ByteSize(free))),
            missing: missing.map(ByteSize),
            ..Measured::default()
        };
        let promise = Promise {
            bytes: ByteSize(promised),
            ..PROMISE
        };
        assert_eq!(judge(&checks(&["disk"]), &measured, promise).is_ok(), fits);
    }

    #[rstest]
    #[case::at_the_limit(76, 19, true)]
    #[case::above(77, 19, false)]
    #[case::most_is_kept_back_for_root(4, 1, true)]
    #[case::nothing_is_there(0, 0, true)]
    fn what_is_kept_back_for_root_is_neither_used_nor_free(#[case] used: u64, #[case] free: u64, #[case] passes: bool) {
        let measured = Measured {
            image_fs: Some((ByteSize(100), ByteSize(free))),
            image_fs_used: Some(ByteSize(used)),
            ..Measured::default()
        };
        assert_eq!(judge(&checks(&["disk"]), &measured, PROMISE).is_ok(), passes);
    }

    #[test]
    fn what_cannot_be_measured_is_passed_over() {
        assert_eq!(
            judge(&checks(&["disk", "cpu", "mem"]), &Measured::default(), PROMISE),
            Ok(())
        );
    }
}
