import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.CryptoProtocolVersion;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.NameNodeProxies;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.io.EnumSetWritable;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * The same operations as hdfs-mix, in the same order, by Hadoop's own client: its ClientProtocol, as Hadoop's benchmark of the NameNode
 * uses it, and its FileSystem where bytes are moved. Prints the same report as JSON.
 *
 *     java -cp ... HadoopMix.java hdfs://NAMENODE PLAN REPLICATION
 *
 * PLAN is what `hdfs-mix NAMENODE --write-plan PLAN` wrote: turns of each workload, of which the first is not measured.
 */
public class HadoopMix {
    /** As hdfs-mix: a block that was added and is not written counts as full. */
    static final long BLOCK_BYTES = 1 << 20;
    static final int SMALL_BYTES = 4096;

    record Step(String op, String path, String to) {}

    static class Script {
        final List<Step> before = new ArrayList<>(), steps = new ArrayList<>(), left = new ArrayList<>();

        List<Step> of(String phase) {
            return switch (phase) {
                case "before" -> before;
                case "steps" -> steps;
                default -> left;
            };
        }
    }

    record Took(String op, long ns) {}

    /** One client, with a connection of its own: those of one user in one process would share one. */
    static class Client {
        final UserGroupInformation user = UserGroupInformation.createRemoteUser("root");
        final Map<String, Long> open = new HashMap<>();
        final ClientProtocol namenode;
        final FileSystem files;
        final String name;
        final short replication;

        Client(URI at, Configuration conf, int number, short replication) throws Exception {
            this.replication = replication;
            name = "hadoop-mix-" + ProcessHandle.current().pid() + "-" + number;
            namenode = as(() -> NameNodeProxies.createProxy(conf, at, ClientProtocol.class).getProxy());
            files = as(() -> FileSystem.newInstance(at, conf));
        }

        <T> T as(PrivilegedExceptionAction<T> action) throws Exception {
            return user.doAs(action);
        }

        long create(String path) throws IOException {
            EnumSetWritable<CreateFlag> flag = new EnumSetWritable<>(EnumSet.of(CreateFlag.CREATE));
            return namenode.create(path, new FsPermission((short) 0755), name, flag, false, replication, BLOCK_BYTES,
                    CryptoProtocolVersion.supported(), null, null).getFileId();
        }

        void isTrue(boolean done, String what) throws IOException {
            if (!done) throw new IOException(what + " was not done");
        }

        void step(Step step) throws IOException {
            String path = step.path;
            switch (step.op) {
                case "read" -> {
                    LocatedBlocks located = namenode.getBlockLocations(path, 0, Long.MAX_VALUE);
                    int places = 0;
                    for (LocatedBlock block : located.getLocatedBlocks()) places += block.getLocations().length;
                    isTrue(places > 0, "finding its block");
                }
                case "stat" -> isTrue(namenode.getFileInfo(path) != null, "stat");
                case "list" -> {
                    byte[] after = HdfsFileStatus.EMPTY_NAME;
                    while (true) {
                        DirectoryListing page = namenode.getListing(path, after, false);
                        if (!page.hasMore()) break;
                        after = page.getLastName();
                    }
                }
                case "add-block" -> {
                    Long file = open.remove(path);
                    namenode.addBlock(path, name, null, null, file, null, null);
                }
                case "move" -> namenode.rename2(path, step.to);
                case "create" -> {
                    long file = create(path);
                    isTrue(namenode.complete(path, name, null, file), "complete");
                }
                case "delete" -> isTrue(namenode.delete(path, false), "delete");
                case "set-owner" -> namenode.setOwner(path, "somebody", "some");
                case "set-replication" -> isTrue(namenode.setReplication(path, replication), "setReplication");
                case "set-permission" -> namenode.setPermission(path, new FsPermission((short) 0640));
                case "mkdirs" -> isTrue(namenode.mkdirs(path, new FsPermission((short) 0755), false), "mkdirs");
                case "content-summary" -> isTrue(namenode.getContentSummary(path).getLength() > 0, "summing up");
                case "put-4k" -> {
                    try (FSDataOutputStream out = files.create(new org.apache.hadoop.fs.Path(path), false, SMALL_BYTES, replication, BLOCK_BYTES)) {
                        out.write(new byte[SMALL_BYTES]);
                    }
                }
                case "get-4k" -> {
                    try (FSDataInputStream in = files.open(new org.apache.hadoop.fs.Path(path))) {
                        in.readFully(new byte[SMALL_BYTES]);
                    }
                }
                default -> throw new IOException(step.op + " is not known");
            }
        }

        void prepare(Step step) throws IOException {
            if (step.op.equals("add-block")) open.put(step.path, create(step.path)); else step(step);
        }

        void clear(Step step) throws IOException {
            isTrue(namenode.delete(step.path, false), "delete");
        }
    }

    interface Work {
        void on(Client client, Step step) throws IOException;
    }

    /** All clients at the same time. */
    static List<Took> atOnce(ExecutorService threads, List<Client> clients, List<Script> scripts, String phase, Work work) throws Exception {
        List<Callable<List<Took>>> tasks = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            Client client = clients.get(i);
            List<Step> steps = scripts.get(i).of(phase);
            tasks.add(() -> client.as(() -> {
                List<Took> took = new ArrayList<>(steps.size());
                for (Step step : steps) {
                    long at = System.nanoTime();
                    work.on(client, step);
                    took.add(new Took(step.op, System.nanoTime() - at));
                }
                return took;
            }));
        }
        List<Took> all = new ArrayList<>();
        for (Future<List<Took>> done : threads.invokeAll(tasks)) all.addAll(done.get());
        return all;
    }

    static String latency(String op, List<Long> of) {
        Collections.sort(of);
        int last = of.size() - 1;
        return String.format("{\"operation\":\"%s\",\"count\":%d,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}", op, of.size(),
                of.get(last / 2) / 1e3, of.get((int) (last * 0.99)) / 1e3, of.get(last) / 1e3);
    }

    static String cell(String workload, List<Double> rates, List<Took> took, short replication) {
        Map<String, List<Long>> byOp = new TreeMap<>();
        for (Took one : took) byOp.computeIfAbsent(one.op, op -> new ArrayList<>()).add(one.ns);
        List<String> latencies = new ArrayList<>();
        byOp.forEach((op, of) -> latencies.add(latency(op, of)));
        Collections.sort(rates);
        String target = "HDFS, Hadoop's client" + (replication == 1 ? "" : ", " + replication + " copies");
        String conditions = "Hadoop's own client in Java, a connection for each client, nothing cached; else as HDFS";
        // Creates are two messages; those of bytes are not counted.
        long messages = took.size() + byOp.getOrDefault("create", List.of()).size();
        return String.format("{\"workload\":\"%s\",\"target\":\"%s\",\"per_second\":%.1f,\"low\":%.1f,\"high\":%.1f,\"conditions\":\"%s\","
                + "\"counters\":{\"engine_round_trips\":0,\"messages\":%.3f,\"payload_bytes\":0,\"syncs\":0},\"latencies\":[%s]}", workload, target,
                rates.get(rates.size() / 2), rates.get(0), rates.get(rates.size() - 1), conditions, (double) messages / took.size(),
                String.join(",", latencies));
    }

    public static void main(String[] words) throws Exception {
        URI at = URI.create(words[0]);
        short replication = Short.parseShort(words[2]);
        // Of each workload, its turns; of each turn, a script for each client.
        Map<String, Map<Integer, List<Script>>> workloads = new LinkedHashMap<>();
        for (String line : Files.readAllLines(Path.of(words[1]))) {
            String[] of = line.split("\t", -1);
            List<Script> turn = workloads.computeIfAbsent(of[0], name -> new TreeMap<>()).computeIfAbsent(Integer.valueOf(of[1]), n -> new ArrayList<>());
            int client = Integer.parseInt(of[2]);
            while (turn.size() <= client) turn.add(new Script());
            if (!of[3].isEmpty()) turn.get(client).of(of[3]).add(new Step(of[4], of[5], of[6]));
        }
        int count = workloads.values().iterator().next().values().iterator().next().size();
        Configuration conf = new Configuration();
        List<Client> clients = new ArrayList<>();
        for (int i = 0; i < count; i++) clients.add(new Client(at, conf, i, replication));
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<String> cells = new ArrayList<>();
        for (var workload : workloads.entrySet()) {
            List<Double> rates = new ArrayList<>();
            List<Took> took = new ArrayList<>();
            boolean warmsUp = true;
            for (List<Script> turn : workload.getValue().values()) {
                atOnce(threads, clients, turn, "before", Client::prepare);
                long begun = System.nanoTime();
                List<Took> of = atOnce(threads, clients, turn, "steps", Client::step);
                double seconds = (System.nanoTime() - begun) / 1e9;
                atOnce(threads, clients, turn, "left", Client::clear);
                if (!warmsUp) {
                    rates.add(of.size() / seconds);
                    took.addAll(of);
                }
                warmsUp = false;
            }
            cells.add(cell(workload.getKey(), rates, took, replication));
        }
        threads.shutdown();
        System.out.printf("{\"title\":\"HDFS by Hadoop's client: %d clients\",\"cells\":[%s]}%n", count, String.join(",", cells));
        // Hadoop's client keeps threads.
        System.exit(0);
    }
}
