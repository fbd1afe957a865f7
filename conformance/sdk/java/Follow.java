import com.couchbase.client.dcp.Client;
import com.couchbase.client.dcp.highlevel.DatabaseChangeListener;
import com.couchbase.client.dcp.highlevel.Deletion;
import com.couchbase.client.dcp.highlevel.FailoverLog;
import com.couchbase.client.dcp.highlevel.FlowControlMode;
import com.couchbase.client.dcp.highlevel.Mutation;
import com.couchbase.client.dcp.highlevel.Rollback;
import com.couchbase.client.dcp.highlevel.SeqnoAdvanced;
import com.couchbase.client.dcp.highlevel.SnapshotMarker;
import com.couchbase.client.dcp.highlevel.StreamFailure;
import com.couchbase.client.dcp.highlevel.StreamOffset;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Maintains a copy of a bucket with the official DCP client for Java, in a file that contains the copy and its position.
 *
 * <p>{@code Follow CONNECTION USER PASSWORD BUCKET FILE die COUNT} halts in the middle of the COUNT-th change, as if killed;
 * {@code … catch-up} writes the file and ends once it has everything that existed when it began; {@code … until SIGNAL}
 * creates a file SIGNAL.ready once it streams, and does the same when a file SIGNAL appears. All start from the position in
 * the file.
 *
 * <p>A line of the file is {@code offset vBucket uuid seqno start end} or {@code document vBucket key content}. The file is
 * only ever replaced as a whole.
 */
public class Follow implements DatabaseChangeListener {
  /** Number of changes between two writes of the file. */
  private static final int SAVE_INTERVAL = 10_000;
  /** Maximum bytes in flight. */
  private static final int WINDOW_BYTES = 1 << 20;

  private final Path file;
  private final int dieAt;
  private final Map<Integer, StreamOffset> offsets = new HashMap<>();
  private final Map<Integer, TreeMap<String, String>> documents = new HashMap<>();
  private final Set<Integer> opened = new HashSet<>();
  private Client client;
  private int changes;
  private int rollbacks;
  private int repeated;

  private Follow(Path file, int dieAt) throws IOException {
    this.file = file;
    this.dieAt = dieAt;
    if (!Files.exists(file)) {
      return;
    }
    for (String line : Files.readAllLines(file)) {
      String[] words = line.split(" ", 6);
      int vbucket = Integer.parseInt(words[1]);
      if (words[0].equals("offset")) {
        long uuid = Long.parseUnsignedLong(words[2]);
        SnapshotMarker snapshot =
            new SnapshotMarker(Long.parseLong(words[4]), Long.parseLong(words[5]));
        offsets.put(vbucket, new StreamOffset(uuid, Long.parseLong(words[3]), snapshot, 0));
      } else {
        of(vbucket).put(words[2], words[3]);
      }
    }
  }

  private TreeMap<String, String> of(int vbucket) {
    return documents.computeIfAbsent(vbucket, number -> new TreeMap<>());
  }

  private synchronized void save() {
    StringBuilder text = new StringBuilder();
    offsets.forEach((vbucket, offset) -> {
      SnapshotMarker snapshot = offset.getSnapshot();
      text.append("offset ").append(vbucket);
      text.append(' ').append(Long.toUnsignedString(offset.getVbuuid()));
      text.append(' ').append(offset.getSeqno());
      text.append(' ').append(snapshot.getStartSeqno());
      text.append(' ').append(snapshot.getEndSeqno()).append('\n');
    });
    documents.forEach((vbucket, found) -> found.forEach((key, content) -> {
      text.append("document ").append(vbucket);
      text.append(' ').append(key).append(' ').append(content).append('\n');
    }));
    try {
      Path next = file.resolveSibling(file.getFileName() + ".next");
      Files.writeString(next, text);
      Files.move(next, file, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  private void moved(int vbucket, StreamOffset offset) {
    StreamOffset before = offsets.put(vbucket, offset);
    if (before != null && before.getSeqno() >= offset.getSeqno()) {
      repeated += 1;
    }
    changes += 1;
    if (changes == dieAt) {
      Runtime.getRuntime().halt(9);
    }
    if (changes % SAVE_INTERVAL == 0) {
      save();
    }
  }

  @Override
  public synchronized void onMutation(Mutation mutation) {
    String content = new String(mutation.getContent(), StandardCharsets.UTF_8);
    of(mutation.getVbucket()).put(mutation.getKey(), content);
    moved(mutation.getVbucket(), mutation.getOffset());
  }

  @Override
  public synchronized void onDeletion(Deletion deletion) {
    of(deletion.getVbucket()).remove(deletion.getKey());
    moved(deletion.getVbucket(), deletion.getOffset());
  }

  @Override
  public synchronized void onSeqnoAdvanced(SeqnoAdvanced advanced) {
    offsets.put(advanced.getVbucket(), advanced.getOffset());
  }

  @Override
  public synchronized void onFailoverLog(FailoverLog log) {
    opened.add(log.getVbucket());
  }

  /** Documents do not record what they replaced: the vBucket is copied again. */
  @Override
  public synchronized void onRollback(Rollback rollback) {
    rollbacks += 1;
    int vbucket = rollback.getVbucket();
    documents.remove(vbucket);
    offsets.remove(vbucket);
    client.rollbackAndRestartStream(vbucket, 0).subscribe();
  }

  @Override
  public void onFailure(StreamFailure failure) {
    System.err.println("vBucket " + failure.getVbucket() + ": " + failure.getCause());
    System.exit(1);
  }

  private synchronized boolean has(Map<Integer, Long> seqnos) {
    return seqnos.entrySet().stream().allMatch(entry -> {
      StreamOffset offset = offsets.getOrDefault(entry.getKey(), StreamOffset.ZERO);
      return opened.contains(entry.getKey()) && offset.getSeqno() >= entry.getValue();
    });
  }

  private Map<Integer, Long> seqnos() {
    Map<Integer, Long> seqnos = new HashMap<>();
    client.getSeqnos().toIterable()
        .forEach(found -> seqnos.put(found.partition(), found.seqno()));
    return seqnos;
  }

  private void run(String connection, String user, String password, String bucket, Path signal)
      throws Exception {
    client = Client.builder()
        .connectionString(connection)
        .credentials(user, password)
        .bucket(bucket)
        .collectionsAware(true)
        .userAgent("nacre-conformance", "1")
        .flowControl(WINDOW_BYTES)
        .build();
    client.listener(this, FlowControlMode.AUTOMATIC);
    client.connect().block();
    Map<Integer, Long> seqnos = seqnos();
    Map<Integer, StreamOffset> from = new HashMap<>();
    synchronized (this) {
      seqnos.keySet().forEach(
          vbucket -> from.put(vbucket, offsets.getOrDefault(vbucket, StreamOffset.ZERO)));
    }
    client.resumeStreaming(from).block();
    if (signal != null) {
      Files.writeString(Path.of(signal + ".ready"), "");
      while (!Files.exists(signal)) {
        Thread.sleep(10);
      }
      seqnos = seqnos();
    }
    while (!has(seqnos)) {
      Thread.sleep(10);
    }
    client.disconnect().block();
    save();
    System.out.println("rollbacks " + rollbacks);
    System.out.println("repeated " + repeated);
    System.exit(0);
  }

  public static void main(String[] arguments) throws Exception {
    boolean dies = arguments[5].equals("die");
    int dieAt = dies ? Integer.parseInt(arguments[6]) : -1;
    Follow follow = new Follow(Path.of(arguments[4]), dieAt);
    Path signal = arguments[5].equals("until") ? Path.of(arguments[6]) : null;
    follow.run(arguments[0], arguments[1], arguments[2], arguments[3], signal);
  }
}
