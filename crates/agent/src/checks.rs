//! Measures what the checks before a pull look at.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

/// Two looks at the processors, this far apart, as KubeEdge does it.
const SAMPLE: Duration = Duration::from_millis(100);

/// Busy share of all processors in percent, over a tenth of a second.
pub(crate) async fn cpu(proc: &Path) -> Option<f64> {
    let before = read_cpu(proc).await?;
    sleep(SAMPLE).await;
    busy(before, read_cpu(proc).await?)
}

/// Used share of memory in percent.
pub(crate) async fn memory(proc: &Path) -> Option<f64> {
    used_memory(&tokio::fs::read_to_string(proc.join("meminfo")).await.ok()?)
}

/// Idle and all ticks.
type Ticks = (u64, u64);

async fn read_cpu(proc: &Path) -> Option<Ticks> {
    ticks(&tokio::fs::read_to_string(proc.join("stat")).await.ok()?)
}

/// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, and guests that user holds already.
fn ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    let idle = fields.get(3)? + fields.get(4).unwrap_or(&0);
    Some((idle, fields.iter().sum()))
}

fn busy(before: Ticks, after: Ticks) -> Option<f64> {
    let all = after.1.checked_sub(before.1).filter(|all| *all > 0)?;
    let idle = after.0.saturating_sub(before.0).min(all);
    Some(percent(all - idle, all))
}

/// Total less free, buffers, cache and what the kernel can take back at once.
fn used_memory(meminfo: &str) -> Option<f64> {
    let value = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let total = value("MemTotal").filter(|total| *total > 0)?;
    let free = ["MemFree", "Buffers", "Cached", "SReclaimable"]
        .iter()
        .filter_map(|name| value(name))
        .sum::<u64>();
    Some(percent(total.saturating_sub(free), total))
}

#[expect(clippy::cast_precision_loss, reason = "a percentage for people, with two digits")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let before = ticks("cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 1 1 1\n").unwrap();
        let after = ticks("cpu  160 0 120 815 5 0 0 0 50 0\n").unwrap();
        assert_eq!(busy(before, after), Some(80.0));
        assert_eq!(busy(after, after), None, "no tick has passed");
    }

    #[test]
    fn memory_without_what_can_be_had_back() {
        let meminfo = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 900 kB\nBuffers: 50 kB\nCached: 200 kB\nSReclaimable: 50 kB\n";
        assert_eq!(used_memory(meminfo), Some(60.0));
        assert_eq!(used_memory("nothing"), None);
    }

    #[tokio::test]
    async fn this_machine_can_be_measured() {
        let proc = Path::new("/proc");
        let share = memory(proc).await.unwrap();
        assert!(share > 0.0 && share <= 100.0, "{share}");
        assert_eq!(cpu(Path::new("/nowhere")).await, None);
    }
}
