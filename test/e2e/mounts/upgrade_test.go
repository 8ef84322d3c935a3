package mounts

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// upgrade requests an upgrade to another protocol through a mount.
func upgrade(t *testing.T, path, protocol string) *http.Response {
	t.Helper()
	config := server.Named(path).Config(kcptest.Alice)
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(kcptest.Context(t), http.MethodGet, config.Host+"/api/v1/namespaces/default/pods/one/exec?command=sh", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {protocol}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "Cookie": {"a=b"},
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestUpgradedConnectionEndsWithMount(t *testing.T) {
	t.Parallel()
	org, path := ready(t, elsewhere.URL+"/upgraded")
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		response := upgrade(t, path, protocol)
		if response.StatusCode != http.StatusSwitchingProtocols {
			content, _ := io.ReadAll(response.Body)
			t.Fatalf("%s: got %d %s", protocol, response.StatusCode, content)
		}
		stream, reader := response.Body.(io.ReadWriteCloser), bufio.NewReader(response.Body)
		fmt.Fprintln(stream, "hello")
		if line, err := reader.ReadString('\n'); line != "hello\n" {
			t.Fatalf("%s: got %q, %v", protocol, line, err)
		}
		point(t, org, "prod", "Ready", elsewhere.URL+"/for/"+strings.ToLower(protocol[:4]))
		if rest, err := io.ReadAll(reader); len(rest) > 0 {
			t.Errorf("%s: got %q, %v", protocol, rest, err)
		}
		want(t, org, "mounted", "Ready", "", "")
	}
	if response := upgrade(t, path, "h2c"); response.StatusCode != http.StatusBadRequest {
		t.Errorf("h2c: got %d", response.StatusCode)
	}
}
