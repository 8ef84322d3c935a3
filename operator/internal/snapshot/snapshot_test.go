package snapshot

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kcplane/kcp/operator/internal/retention"
)

// etcd starts a server on a directory, and returns its only endpoint.
func etcd(t *testing.T, directory, peerURL string) string {
	t.Helper()
	sockets, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.Name = directory, "panic", "x-0"
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "client")}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(sockets, "peer")}}
	advertised, err := url.Parse(peerURL)
	if err != nil {
		t.Fatal(err)
	}
	config.AdvertisePeerUrls = []url.URL{*advertised}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	return client.String()
}

func connect(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const peerURL = "http://127.0.0.1:1"

func TestWhatWasWrittenBeforeASnapshotIsThereAfterItIsRestored(t *testing.T) {
	for name, store := range map[string]Store{"directory": Directory(t.TempDir()), "bucket": bucket(t)} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			endpoint := etcd(t, filepath.Join(t.TempDir(), "data"), peerURL)
			client := connect(t, endpoint)
			if _, err := client.Put(ctx, "/kept", "yes"); err != nil {
				t.Fatal(err)
			}
			listed, err := client.MemberList(ctx)
			if err != nil {
				t.Fatal(err)
			}
			identity := strconv.FormatUint(listed.Header.ClusterId, 16)
			notes := filepath.Join(t.TempDir(), "notes")
			if err := os.WriteFile(notes, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			others := "other/x/20300101T000000Z-1.db"
			for _, key := range []string{others, "team/x/notes"} { // the one of another cluster of that name, the other no snapshot
				if err := store.Put(ctx, key, notes); err != nil {
					t.Fatal(err)
				}
			}
			var keys []string
			for n := range 4 {
				at := time.Date(2031, 1, 1, n, 0, 0, 0, time.UTC)
				clock := func() time.Time { at = at.Add(time.Second); return at }
				taken, err := Save(ctx, clientv3.Config{Endpoints: []string{endpoint}}, store, "team/x", retention.Policy{Last: 2}, clock)
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, taken.Key)
				if taken.Revision < 2 || taken.Size == 0 || len(taken.SHA256) != 64 {
					t.Errorf("taken: %+v", taken)
				}
				if taken.ClusterID != identity || taken.EtcdVersion != version.Version || taken.Duration.Duration != time.Second {
					t.Errorf("taken of cluster %s: %+v", identity, taken)
				}
			}
			if stored, err := store.List(ctx, ""); err != nil || !slices.Equal(stored, slices.Concat([]string{others}, keys[2:], []string{"team/x/notes"})) {
				t.Errorf("%v, %v is stored, not what is of others and the last two of %v", stored, err, keys)
			}
			before, err := client.Put(ctx, "/late", "yes")
			if err != nil {
				t.Fatal(err)
			}
			member := Member{Name: "x-0", PeerURL: peerURL, Token: "t", DataDirectory: filepath.Join(t.TempDir(), "data")}
			if err := Restore(ctx, store, keys[3], member); err != nil {
				t.Fatal(err)
			}
			restored := connect(t, etcd(t, member.DataDirectory, peerURL))
			for key, want := range map[string]int64{"/kept": 1, "/late": 0} {
				got, err := restored.Get(ctx, key)
				if err != nil || got.Count != want {
					t.Errorf("%s is there %v times, %v", key, got, err)
				}
				if got != nil && got.Header.Revision <= before.Header.Revision {
					t.Errorf("revision %d is not beyond %d, which clients have seen", got.Header.Revision, before.Header.Revision)
				}
			}
			if err := Restore(ctx, store, keys[3], member); err == nil || !strings.Contains(err.Error(), "data is never overwritten") {
				t.Errorf("restored over data: %v", err)
			}

			earlier, file := "x/"+path.Base(keys[3]), filepath.Join(t.TempDir(), "snapshot.db") // a key without a namespace
			if err := errors.Join(store.Get(ctx, keys[3], file), store.Put(ctx, earlier, file)); err != nil {
				t.Fatal(err)
			}
			member.DataDirectory = filepath.Join(t.TempDir(), "data")
			if err := Restore(ctx, store, earlier, member); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADamagedSnapshotIsNeitherStoredNorRestored(t *testing.T) {
	ctx := t.Context()
	directory := t.TempDir()
	store := Directory(directory)
	endpoint := etcd(t, filepath.Join(t.TempDir(), "data"), peerURL)
	taken, err := Save(ctx, clientv3.Config{Endpoints: []string{endpoint}}, store, "x", retention.Policy{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, taken.Key)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-100] ^= 1
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	member := Member{Name: "x-0", PeerURL: peerURL, Token: "t", DataDirectory: filepath.Join(t.TempDir(), "data")}
	if err := Restore(ctx, store, taken.Key, member); err == nil {
		t.Error("it was restored")
	}
	if _, err := os.Stat(member.DataDirectory); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
}

func TestNoKeyLeadsOutOfADirectory(t *testing.T) {
	store := Directory(t.TempDir())
	for _, key := range []string{"../x", "/etc/passwd", "a/../../x"} {
		if err := store.Get(context.Background(), key, filepath.Join(t.TempDir(), "file")); err == nil || !strings.Contains(err.Error(), "outside of the store") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// bucket returns a store at a server that implements as much of S3 as the store uses.
func bucket(t *testing.T) Store {
	t.Helper()
	var lock sync.Mutex
	objects := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/snapshots"), "/")
		switch {
		case r.Method == http.MethodPut:
			content, err := body(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			objects[key] = content
			w.Header().Set("ETag", `"1"`)
		case r.Method == http.MethodDelete:
			delete(objects, key)
			w.WriteHeader(http.StatusNoContent)
		case key == "":
			list(w, objects, r.URL.Query().Get("prefix"))
		case objects[key] == nil:
			http.Error(w, "", http.StatusNotFound)
		default:
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, key, time.Unix(1, 0), strings.NewReader(string(objects[key])))
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "me")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	store, err := NewBucket(server.URL, "snapshots", "/production/", "eu", nil)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// body reads what is uploaded, which comes in signed chunks.
func body(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var content []byte
	reader := bufio.NewReader(r.Body)
	for {
		header, err := reader.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(header), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil || n == 0 {
			return content, err
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(reader, chunk); err != nil {
			return nil, err
		}
		content = append(content, chunk[:n]...)
	}
}

func list(w http.ResponseWriter, objects map[string][]byte, prefix string) {
	type content struct {
		Key, LastModified, ETag string
		Size                    int
	}
	result := struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []content
	}{}
	for key, object := range objects {
		if strings.HasPrefix(key, prefix) {
			result.Contents = append(result.Contents, content{Key: key, Size: len(object), ETag: `"1"`, LastModified: "2031-01-01T00:00:00.000Z"})
		}
	}
	_, _ = fmt.Fprint(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(result)
}

// vanishing is a store to which the member is lost as soon as a snapshot of it is stored.
type vanishing struct {
	Directory
	socket string
}

func (v vanishing) Put(ctx context.Context, key, file string) error {
	return errors.Join(v.Directory.Put(ctx, key, file), os.Remove(v.socket))
}

func TestASnapshotThatIsStoredIsToldOf(t *testing.T) {
	endpoint := etcd(t, filepath.Join(t.TempDir(), "data"), peerURL)
	store := vanishing{Directory(t.TempDir()), strings.TrimPrefix(endpoint, "unix://")}
	taken, err := Save(t.Context(), clientv3.Config{Endpoints: []string{endpoint}}, store, "x", retention.Policy{}, time.Now)
	if err != nil || taken.ClusterID == "" {
		t.Errorf("got %+v, %v", taken, err)
	}
}
