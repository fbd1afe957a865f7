import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.function.BiFunction;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Runs the operations of the official Java SDK against a running server.
 *
 * <p>{@code Operations CONNECTION USER PASSWORD BUCKET CERTIFICATE [FILTER]}: the certificate is the file of the authority, or "-"
 * without TLS. Each case is a static method that takes an {@link Environment}. The output has a line for each, {@code ok   NAME} or
 * {@code FAIL NAME: REASON}, then {@code N passed, M failed}; the exit code is 1 if any failed.
 */
public final class Operations {
  private static final List<Class<?>> CASES =
      List.of(
          Documents.class,
          SubDocuments.class,
          Transacted.class,
          Queries.class,
          Views.class,
          Searches.class,
          Managed.class,
          Functions.class);
  private static final Duration START = Duration.ofSeconds(30);

  private Operations() {}

  public static void main(String[] arguments) throws Exception {
    Logger.getLogger("").setLevel(Level.OFF);
    String certificate = arguments[4];
    String filter = arguments.length > 5 ? arguments[5] : "";
    BiFunction<String, String, Cluster> connect =
        (user, password) -> connect(arguments[0], user, password, certificate);
    int passed = 0;
    int failed = 0;
    try (Cluster cluster = connect.apply(arguments[1], arguments[2])) {
      cluster.waitUntilReady(START);
      Environment environment = new Environment(cluster, arguments[3], connect);
      for (Class<?> group : CASES) {
        for (Method method : casesOf(group)) {
          String name = group.getSimpleName() + "/" + method.getName();
          if (!name.contains(filter)) {
            continue;
          }
          String problem = play(method, environment);
          if (problem == null) {
            passed++;
            System.out.println("ok   " + name);
          } else {
            failed++;
            System.out.println("FAIL " + name + ": " + problem.replaceAll("\\s+", " "));
          }
        }
      }
      environment.clean();
    }
    System.out.println(passed + " passed, " + failed + " failed");
    System.exit(passed > 0 && failed == 0 ? 0 : 1);
  }

  private static Cluster connect(String connection, String user, String password, String certificate) {
    return Cluster.connect(
        connection,
        ClusterOptions.clusterOptions(user, password)
            .environment(
                settings -> {
                  if (!certificate.equals("-")) {
                    settings.securityConfig(security -> security.enableTls(true).trustCertificate(Path.of(certificate)));
                  }
                  settings.timeoutConfig(
                      timeouts -> timeouts.kvTimeout(Duration.ofSeconds(5)).kvDurableTimeout(Duration.ofSeconds(10)));
                }));
  }

  private static List<Method> casesOf(Class<?> group) {
    return Arrays.stream(group.getDeclaredMethods())
        .filter(method -> Modifier.isStatic(method.getModifiers()) && !Modifier.isPrivate(method.getModifiers()))
        .filter(method -> Arrays.equals(method.getParameterTypes(), new Class<?>[] {Environment.class}))
        .sorted(Comparator.comparing(Method::getName))
        .toList();
  }

  /** Returns the reason of a failure with its line, null if the case passes. */
  private static String play(Method method, Environment environment) throws IllegalAccessException {
    try {
      method.invoke(null, environment);
      return null;
    } catch (InvocationTargetException wrapped) {
      Throwable error = wrapped.getCause();
      String group = method.getDeclaringClass().getName();
      int line =
          Arrays.stream(error.getStackTrace())
              .filter(frame -> frame.getClassName().equals(group))
              .mapToInt(StackTraceElement::getLineNumber)
              .findFirst()
              .orElse(0);
      return "line " + line + ": " + error;
    }
  }
}
