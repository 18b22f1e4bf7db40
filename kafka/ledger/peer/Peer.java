// Confluent's parallel consumer, for `figures`: handles a number of records by key, and prints records a second,
// from the first handler to the last.

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

class Peer {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1], group = arguments[2];
        int concurrency = Integer.parseInt(arguments[3]), work = Integer.parseInt(arguments[4]);
        long records = Long.parseLong(arguments[5]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("group.id", group);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", ByteArrayDeserializer.class);
        properties.put("value.deserializer", ByteArrayDeserializer.class);
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(concurrency)
            .consumer(new KafkaConsumer<byte[], byte[]>(properties))
            .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));
        var first = new AtomicLong();
        var left = new AtomicLong(records);
        var end = new CountDownLatch(1);
        processor.poll(context -> {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
            if (work > 0) {
                try {
                    Thread.sleep(work);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
            if (left.decrementAndGet() == 0) {
                end.countDown();
            }
        });
        end.await();
        double seconds = (System.nanoTime() - first.get()) / 1e9;
        System.out.println(records / seconds);
        Runtime.getRuntime().halt(0);
    }
}
