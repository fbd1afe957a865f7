/*
 * Serves the sessions of an embedded database on a port of this machine: `serve FOLDER`.
 *
 * The conformance cases reach the database through this program, on the way that applications in C take: one thread, which waits
 * for the descriptor of nacre_wake_fd() beside its own. It prints the port, and ends when its standard input ends.
 */
#include <arpa/inet.h>
#include <nacre.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors before those of the clients. */
enum { INPUT, LISTENER, WAKE, FIRST };

#define CLIENTS_MAX 64

static struct pollfd fds[FIRST + CLIENTS_MAX];
static nacre_session *sessions[FIRST + CLIENTS_MAX];
static nfds_t count = FIRST;

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nacre_error_message());
  exit(1);
}

static int listens(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, CLIENTS_MAX) ||
      getsockname(fd, (struct sockaddr *)&address, &size)) {
    perror("listen");
    exit(1);
  }
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return fd;
}

static void accept_client(const nacre *db) {
  int one = 1, fd = accept(fds[LISTENER].fd, NULL, NULL);
  if (fd < 0)
    return;
  if (count == FIRST + CLIENTS_MAX || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) {
    close(fd);
    return;
  }
  if (nacre_session_open(db, &sessions[count]) != NACRE_OK)
    fail("open a session");
  fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Sends responses and frees them; returns 0 if the client is gone. */
static int sent(int fd, nacre_buffer *responses) {
  size_t done = 0;
  while (done < responses->size) {
    ssize_t bytes = send(fd, responses->data + done, responses->size - done, MSG_NOSIGNAL);
    if (bytes <= 0)
      break;
    done += (size_t)bytes;
  }
  int is_whole = done == responses->size;
  nacre_buffer_free(responses);
  return is_whole;
}

/* Passes on what a client has sent; returns 0 at its end. */
static int receives(nfds_t index) {
  static uint8_t bytes[1 << 16];
  nacre_buffer responses = {0};
  ssize_t size = recv(fds[index].fd, bytes, sizeof bytes, 0);
  if (size <= 0)
    return 0;
  int status = nacre_session_receive(sessions[index], bytes, (size_t)size, &responses);
  return sent(fds[index].fd, &responses) && status == NACRE_OK;
}

static int polls(nfds_t index) {
  nacre_buffer responses = {0};
  int status = nacre_session_poll(sessions[index], &responses);
  return sent(fds[index].fd, &responses) && status == NACRE_OK;
}

static void end(nfds_t index) {
  nacre_session_free(sessions[index]);
  close(fds[index].fd);
  count--;
  fds[index] = fds[count];
  sessions[index] = sessions[count];
}

int main(int arguments, char **values) {
  nacre *db;
  if (arguments < 2 || nacre_open(values[1], NULL, &db) != NACRE_OK)
    fail("open the folder");
  fds[INPUT] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
  fds[LISTENER] = (struct pollfd){.fd = listens(), .events = POLLIN};
  fds[WAKE] = (struct pollfd){.fd = nacre_wake_fd(db), .events = POLLIN};
  for (;;) {
    if (poll(fds, count, -1) < 0) {
      perror("poll");
      return 1;
    }
    /* Nothing is ever written to the standard input: it can be read at its end. */
    if (fds[INPUT].revents)
      break;
    int is_woken = fds[WAKE].revents != 0;
    if (is_woken)
      nacre_wake_clear(db);
    /* From the end, because the last client takes the place of one that has ended. */
    for (nfds_t index = count; index-- > FIRST;) {
      int goes_on = !fds[index].revents || receives(index);
      if (goes_on && is_woken)
        goes_on = polls(index);
      if (!goes_on)
        end(index);
    }
    if (fds[LISTENER].revents)
      accept_client(db);
  }
  while (count > FIRST)
    end(count - 1);
  close(fds[LISTENER].fd);
  return nacre_close(db) == NACRE_OK ? 0 : 1;
}
