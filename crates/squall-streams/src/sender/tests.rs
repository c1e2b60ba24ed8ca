use squall_testkit::redis::RedisServer;

use super::*;

fn batch(count: usize) -> Vec<RoutedRecord> {
    (0..count)
        .map(|n| RoutedRecord { partition: 0, fields: vec![(b"data".to_vec(), n.to_string().into_bytes())] })
        .collect()
}

async fn place() -> (RedisServer, RedisClient, StreamSender) {
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let name = StreamName::parse("shop.orders").unwrap();
    let sender = StreamSender::open(&link, &Namespace::default(), &name, 1, 10_000).await;
    (server, link, sender)
}

async fn length(link: &RedisClient, lane: &PartitionSender) -> u64 {
    redis::cmd("XLEN").arg(&lane.events_key).query_async(&mut link.connection()).await.unwrap()
}

#[tokio::test]
async fn a_batch_sent_twice_is_appended_once() {
    let (_server, link, sender) = place().await;
    let lane = &sender.partitions[0];
    let ids = sender.try_append(lane, 1, &batch(150)).await.unwrap().unwrap();
    assert_eq!(ids.len(), 150);
    assert_eq!(sender.try_append(lane, 1, &batch(150)).await.unwrap().unwrap(), ids);
    assert_eq!(sender.try_append(lane, 2, &batch(3)).await.unwrap().unwrap().len(), 3);
    assert_eq!(length(&link, lane).await, 153);
    assert!(sender.try_append(lane, 1, &batch(150)).await.unwrap().is_none(), "one that comes late is refused");
}

/// With Redis 8.6 (`scripts/redis-8`) the stream remembers by itself; older servers know only the key.
#[tokio::test]
async fn a_lost_memory_is_made_up_for_where_the_server_has_idmp() {
    let (_server, link, sender) = place().await;
    let lane = &sender.partitions[0];
    let ids = sender.try_append(lane, 1, &batch(150)).await.unwrap().unwrap();
    let () = redis::cmd("DEL").arg(&lane.dedup_key).query_async::<i64>(&mut link.connection()).await.map(drop).unwrap();
    let again = sender.try_append(lane, 1, &batch(150)).await.unwrap().unwrap();
    if supports_idempotent_producers(&link).await {
        assert_eq!(again, ids);
        assert_eq!(length(&link, lane).await, 150);
        assert_eq!(sender.try_append(lane, 1, &batch(150)).await.unwrap().unwrap(), ids, "and the key is back");
    } else {
        assert_eq!(length(&link, lane).await, 300);
    }
    assert_eq!(sender.try_append(lane, 2, &batch(1)).await.unwrap().unwrap().len(), 1);
}
