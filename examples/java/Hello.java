// Java 17 over HTTP and WebSocket, without a library: java Hello.java localhost:8080
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.WebSocket;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Hello {
    /** Collects whole text frames; each is one JSON object. */
    static class Frames implements WebSocket.Listener {
        final LinkedBlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        private final StringBuilder part = new StringBuilder();

        @Override
        public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean isLast) {
            part.append(text);
            if (isLast) {
                arrived.add(part.toString());
                part.setLength(0);
            }
            socket.request(1);
            return null;
        }

        String await(String type) throws Exception {
            while (true) {
                String frame = arrived.poll(10, TimeUnit.SECONDS);
                if (frame == null) throw new IllegalStateException("no " + type + " within 10 s");
                if (frame.replace(" ", "").contains("\"type\":\"" + type + "\"")) return frame;
            }
        }
    }

    public static void main(String[] words) throws Exception {
        String server = words[0];
        HttpClient client = HttpClient.newHttpClient();
        Frames frames = new Frames();
        WebSocket socket = client.newWebSocketBuilder().buildAsync(URI.create("ws://" + server + "/ws"), frames).join();
        socket.sendText("{\"type\": \"subscribe\", \"filter\": \"hello/#\"}", true).join();
        frames.await("ack");

        HttpRequest publish = HttpRequest.newBuilder(URI.create("http://" + server + "/api/v1/publish"))
                .POST(HttpRequest.BodyPublishers.ofString("{\"topic\": \"hello/java\", \"data\": \"first light\"}"))
                .build();
        HttpResponse<String> response = client.send(publish, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) throw new IllegalStateException(response.body());

        System.out.println(frames.await("event"));
        socket.sendClose(WebSocket.NORMAL_CLOSURE, "").join();
    }
}
