// Command counter counts its starts in a file, and serves the number. Tests run it in pods, to check volumes and the network. counter ask
// prints what a URL returns, and counter echo what it reads.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "ask" {
		ask(os.Args[2])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "echo" {
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			log.Fatal(err)
		}
		return
	}
	const file = "/data/starts"
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Fatal(err)
	}
	starts, _ := strconv.Atoi(string(content))
	starts++
	if err := os.WriteFile(file, []byte(strconv.Itoa(starts)), 0o600); err != nil {
		log.Fatal(err)
	}
	log.Printf("started %d times", starts)
	s := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, starts)
	})}
	log.Fatal(s.ListenAndServe())
}

func ask(url string) {
	response, err := http.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		log.Fatal(err)
	}
}
