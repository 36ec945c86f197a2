//! The name of a process among its kind.

/// The host's name, for people, and a random part: a restarted process has another name. `program` stands for a host without a
/// name.
pub fn instance_name(program: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => program,
        host => host,
    };
    format!("{host}_{:08x}", rand::random::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_a_name_of_its_own() {
        let (one, two) = (instance_name("agent"), instance_name("agent"));
        assert_ne!(one, two);
        let host = |name: &str| name.rsplit_once('_').unwrap().0.to_owned();
        assert_eq!(host(&one), host(&two));
        assert!(!host(&one).is_empty());
    }
}
