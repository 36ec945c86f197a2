//! The benchmark with few nodes: that it measures what it says, not how fast this machine is.

use larder_scale::rows::{self, Plan};
use larder_scale::table::Row;

#[tokio::test]
async fn every_row_of_hollow_nodes_is_measured() {
    let mut rows: Vec<Row> = Vec::new();
    rows::hollow(&Plan::smoke(), &mut |row| rows.push(row)).await;
    let whats: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
    assert_eq!(rows.len(), 21, "{whats:#?}");
    assert!(rows.iter().all(|row| !row.result.is_empty()), "{rows:#?}");
    let clean_up = rows.iter().find(|row| row.what.starts_with("clean-up")).unwrap();
    let writes: f64 = clean_up.result.parse().unwrap();
    assert!(0.0 < writes && writes <= 2.0, "{clean_up:?}");
}

#[tokio::test]
async fn a_crowd_is_served_and_measured() {
    let mut rows: Vec<Row> = Vec::new();
    rows::crowded(&Plan::smoke(), &mut |row| rows.push(row)).await;
    assert_eq!(rows.len(), 3);
    assert!(rows[0].what.contains("40 nodes, 40 jobs, 80 pairs"), "{rows:#?}");
}

#[test]
fn a_campaign_in_virtual_time_pulls_once_per_node() {
    let mut rows: Vec<Row> = Vec::new();
    rows::virtually(&Plan::smoke(), &mut |row| rows.push(row));
    assert!(rows[0].result.starts_with("51 pulls, 85 s"), "{rows:#?}");
}
