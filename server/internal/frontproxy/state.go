package frontproxy

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

const (
	// stateFile has what the proxy knew last of the root shard, in its directory. With it, the proxy starts while the root shard is down.
	stateFile = "front-proxy-state.json"
	// saveInterval is how often the file is written at most because of a change of Root.
	saveInterval = 30 * time.Second
)

// state is what the proxy stores. It may be old when it is read: the URLs of shards are those until the root shard says others, and a shard
// refuses a request for a logical cluster that it does not hold.
type state struct {
	// Shards are the URLs of all shards by name.
	Shards map[string]string `json:"shards"`
	// Root is what leads from the root shard to other shards.
	Root index.Part `json:"root,omitzero"`
}

// stateStore stores the state. Without a file, it stores nothing. One goroutine uses it.
//
// Invariants:
//   - The file has a complete state, also after a crash: it is replaced as a whole.
//   - A file that cannot be read or written costs no request. The proxy starts without it.
type stateStore struct {
	file string
	// stored is the hash of the content of the file.
	stored [sha256.Size]byte
}

// newStateStore returns the store in a directory; empty for none.
func newStateStore(directory string) *stateStore {
	if directory == "" {
		return &stateStore{}
	}
	return &stateStore{file: filepath.Join(directory, stateFile)}
}

// read returns what is stored.
func (s *stateStore) read() (stored state) {
	if s.file == "" {
		return state{}
	}
	text, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}
	}
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		klog.ErrorS(err, "Reading the stored state failed; the root shard has its content", decisionlog.Path, s.file)
		return state{}
	}
	s.stored = sha256.Sum256(text)
	return stored
}

// save writes the file if the state is another one.
func (s *stateStore) save(next state) {
	text, err := json.MarshalIndent(next, "", " ")
	hash := sha256.Sum256(text)
	if err == nil && hash == s.stored {
		return
	}
	if err == nil {
		err = replaceFile(s.file, text)
	}
	if err != nil {
		klog.ErrorS(err, "Storing the state failed; the front proxy needs the root shard when it starts", decisionlog.Path, s.file)
		return
	}
	s.stored = hash
}

// replaceFile writes a file as a whole, or not at all.
func replaceFile(name string, text []byte) error {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
