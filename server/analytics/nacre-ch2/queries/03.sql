SELECT o_id, o_w_id, o_d_id, SUM(ol_amount) AS revenue, o_entry_d FROM customer, neworder, lines
WHERE c_state LIKE 'a%' AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND no_w_id = o_w_id
  AND no_d_id = o_d_id AND no_o_id = o_id AND o_entry_d < '2017-03-15 00:00:00.000000'
GROUP BY o_id, o_w_id, o_d_id, o_entry_d ORDER BY revenue DESC, o_entry_d
