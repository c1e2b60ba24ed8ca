//! Tests of idempotent appends against a real server.

use squall_testkit::redis::RedisServer;

use super::*;

fn batch(count: usize) -> Vec<RoutedRecord> {
    (0..count)
        .map(|n| RoutedRecord { partition: 0, fields: vec![(b"data".to_vec(), n.to_string().into_bytes())] })
        .collect()
}

async fn test_sender() -> (RedisServer, RedisClient, StreamSender) {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let name = StreamName::parse("shop.orders").unwrap();
    let sender = StreamSender::open(&client, &Namespace::default(), &name, 1, 10_000).await;
    (server, client, sender)
}

async fn stream_length(client: &RedisClient, partition_sender: &PartitionSender) -> u64 {
    redis::cmd("XLEN").arg(&partition_sender.events_key).query_async(&mut client.connection()).await.unwrap()
}

#[tokio::test]
async fn batch_sent_twice_is_appended_once() {
    let (_server, client, sender) = test_sender().await;
    let partition_sender = &sender.partitions[0];
    let ids = sender.try_append(partition_sender, 1, &batch(150)).await.unwrap().unwrap();
    assert_eq!(ids.len(), 150);
    assert_eq!(sender.try_append(partition_sender, 1, &batch(150)).await.unwrap().unwrap(), ids);
    assert_eq!(sender.try_append(partition_sender, 2, &batch(3)).await.unwrap().unwrap().len(), 3);
    assert_eq!(stream_length(&client, partition_sender).await, 153);
    assert!(sender.try_append(partition_sender, 1, &batch(150)).await.unwrap().is_none(), "a late batch is rejected");
}

/// Redis 8.6 (`scripts/redis-8`) records the batch number in the stream; older servers have only
/// the dedup key.
#[tokio::test]
async fn batch_resent_after_dedup_key_loss_is_appended_once_with_idmp() {
    let (_server, client, sender) = test_sender().await;
    let partition_sender = &sender.partitions[0];
    let ids = sender.try_append(partition_sender, 1, &batch(150)).await.unwrap().unwrap();
    let () = redis::cmd("DEL")
        .arg(&partition_sender.dedup_key)
        .query_async::<i64>(&mut client.connection())
        .await
        .map(drop)
        .unwrap();
    let resent_ids = sender.try_append(partition_sender, 1, &batch(150)).await.unwrap().unwrap();
    if supports_idempotent_producers(&client).await {
        assert_eq!(resent_ids, ids);
        assert_eq!(stream_length(&client, partition_sender).await, 150);
        assert_eq!(
            sender.try_append(partition_sender, 1, &batch(150)).await.unwrap().unwrap(),
            ids,
            "the dedup key is restored"
        );
    } else {
        assert_eq!(stream_length(&client, partition_sender).await, 300);
    }
    assert_eq!(sender.try_append(partition_sender, 2, &batch(1)).await.unwrap().unwrap().len(), 1);
}
